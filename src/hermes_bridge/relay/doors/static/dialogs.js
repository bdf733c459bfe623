// Confirming a cancel, the list of keys, and short notes on the result of one's own action.

import { h, icon } from "./dom.js";
import { exchangeLink } from "./row.js";
import { badge, isOpen } from "./status.js";
import { change, on, store } from "./store.js";
import { now, timer } from "./time.js";
import { who } from "./who.js";
import { say } from "./words.js";

const W = say.cancel;
const place = document.getElementById("toast");
let hiding = 0;

/** Says one thing for five seconds; stays while it is hovered or focused. */
export function toast(shape, text, link = null) {
  const el = h("div", { class: "toast", role: "status" }, icon(shape), text, link && h("a", { href: link }, W.show));
  const hide = () => { hiding = setTimeout(() => { el.matches(":hover, :focus-within") ? hide() : el.remove(); }, 5000); };
  clearTimeout(hiding);
  place.replaceChildren(el);
  hide();
}

function dialog(name, ...content) {
  const el = h("dialog", { class: "ask", "aria-label": name }, content);
  el.addEventListener("close", () => el.remove());
  el.addEventListener("click", (event) => { if (event.target === el) el.close(); });
  document.body.append(el);
  return el;
}

export function confirmCancel(row) {
  const { agents } = store;
  const age = h("span", { class: "dim num push" }, timer(now() - row.started_at));
  const text = h("p", { class: "sub" }, W.text(row.from, row.to));
  const keep = h("button", { class: "btn", on: { click: () => el.close() } }, W.keep);
  const go = h("button", { class: "btn danger", on: { click: send } }, W.go);
  const two = h("p", { class: "two" }, keep, go);
  const el = dialog(W.head, h("h2", null, W.head),
    h("p", { class: "route" }, who(row.from, agents.get(row.from), { link: false }), icon("to"), who(row.to, agents.get(row.to), { link: false }), age), text, two);
  let sent = false;

  async function send() {
    sent = go.disabled = true;
    go.textContent = W.going;
    try {
      await change(`/ui/api/exchanges/${encodeURIComponent(row.request_id)}/cancel`);
    } catch (error) {
      if (error.status === 409) return;
      sent = go.disabled = false;
      go.textContent = W.go;
      text.textContent = W.failed(error.hint ?? error.message);
    }
  }

  const stop = on("rows", (rids) => {
    const fresh = store.rows.get(row.request_id);
    if (!rids.includes(row.request_id) || isOpen(fresh)) return;
    if (fresh.status === "cancelled" && sent) {
      el.close();
      toast("ok", W.done, exchangeLink(fresh));
      return;
    }
    text.replaceChildren(fresh.status === "ok" ? W.answered : W.ended, badge(fresh, now()));
    keep.textContent = W.close;
    go.remove();
    keep.focus();
  });
  const counting = on("tick", () => { age.textContent = timer(now() - row.started_at); });
  el.addEventListener("close", () => { stop(); counting(); });
  el.showModal();
  keep.focus();
}

export function showKeys(enabled, setEnabled) {
  const el = dialog(say.keys.head, h("h2", null, say.keys.head),
    h("dl", { class: "keys" }, say.keys.list.map(([key, text]) => [h("dt", null, key.split(/(, | or )/).map((part, i) => (i % 2 ? part : h("kbd", null, part)))), h("dd", null, text)])),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: enabled, on: { change: (event) => setEnabled(event.target.checked) } }), say.keys.single),
    h("p", { class: "two" }, h("button", { class: "btn", on: { click: () => el.close() } }, say.keys.close)));
  el.showModal();
}
