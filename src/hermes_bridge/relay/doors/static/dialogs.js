// Confirming a cancel, the list of keys, and short notes on the result of one's own action.

import { h, icon } from "./dom.js";
import { exchangeLink } from "./row.js";
import { badge, isOpen } from "./status.js";
import { change, on, store } from "./store.js";
import { now, timer } from "./time.js";
import { who } from "./who.js";

const place = document.getElementById("toast");
let hiding = 0;

/** Says one thing for five seconds; stays while it is hovered or focused. */
export function toast(shape, text, link = null) {
  const el = h("div", { class: "toast", role: "status" }, icon(shape), text, link && h("a", { href: link }, "Show"));
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
  const text = h("p", { class: "sub" }, `${row.from} is told at once that the ask was cancelled. ${row.to} is asked to stop; what it already did stays done.`);
  const keep = h("button", { class: "btn", on: { click: () => el.close() } }, "Keep waiting");
  const go = h("button", { class: "btn danger", on: { click: send } }, "Cancel ask");
  const two = h("p", { class: "two" }, keep, go);
  const el = dialog("Cancel this ask?", h("h2", null, "Cancel this ask?"),
    h("p", { class: "route" }, who(row.from, agents.get(row.from), { link: false }), icon("to"), who(row.to, agents.get(row.to), { link: false }), age), text, two);
  let sent = false;

  async function send() {
    sent = go.disabled = true;
    go.textContent = "Cancelling…";
    try {
      await change(`/ui/api/exchanges/${encodeURIComponent(row.request_id)}/cancel`);
    } catch (error) {
      if (error.status === 409) return;
      sent = go.disabled = false;
      go.textContent = "Cancel ask";
      text.textContent = `That did not work: ${error.hint ?? error.message}`;
    }
  }

  const stop = on("rows", (rids) => {
    const fresh = store.rows.get(row.request_id);
    if (!rids.includes(row.request_id) || isOpen(fresh)) return;
    if (fresh.status === "cancelled" && sent) {
      el.close();
      toast("ok", "Ask cancelled", exchangeLink(fresh));
      return;
    }
    text.replaceChildren(fresh.status === "ok" ? "It was answered meanwhile. " : "It ended meanwhile. ", badge(fresh, now()));
    keep.textContent = "Close";
    go.remove();
    keep.focus();
  });
  const timing = setInterval(() => { age.textContent = timer(now() - row.started_at); }, 1000);
  el.addEventListener("close", () => { stop(); clearInterval(timing); });
  el.showModal();
  keep.focus();
}

const KEYS = [
  ["/", "Search"], ["g e, g a, g m", "Exchanges, Agents, Map"], ["j, k", "Next, previous row"], ["Space or x", "Unfold, fold"],
  ["Enter or o", "Open the conversation"], ["c", "Copy link"], ["f", "First filter"], ["n", "Show the new ones"], [".", "Riskiest open ask"],
  ["Shift C", "Cancel the ask (asks first)"], ["t", "Theme"], ["Esc", "Close, clear search, back"], ["?", "This list"],
];

export function showKeys(enabled, setEnabled) {
  const el = dialog("Keys", h("h2", null, "Keys"),
    h("dl", { class: "keys" }, KEYS.map(([key, text]) => [h("dt", null, key.split(/(, | or )/).map((part, i) => (i % 2 ? part : h("kbd", null, part)))), h("dd", null, text)])),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: enabled, on: { change: (event) => setEnabled(event.target.checked) } }), "Single letters work"),
    h("p", { class: "two" }, h("button", { class: "btn", on: { click: () => el.close() } }, "Close")));
  el.showModal();
}
