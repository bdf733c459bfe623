// Beside the feed: Open asks, the riskiest first, and the last hour in figures and bars.

import { bdi, h, icon, renew, svg } from "./dom.js";
import { drawOpen, newPulse } from "./pulse.js";
import { countdown, exchangeLink } from "./row.js";
import { atRisk, isOpen } from "./status.js";
import { ask, on, store } from "./store.js";
import { about, hm, now, timer } from "./time.js";
import { named, short, showPresence, spokenPresence, square } from "./who.js";
import { number, say } from "./words.js";

const W = say.rail, SHOWN = 100;

/** Queued ones last; the others by the time that is left. */
const rank = (row) => (row.status === "queued" ? 1e15 : 0) + (row.deadline ?? 0);
const byRisk = (a, b) => rank(a) - rank(b) || a.started_at - b.started_at;

/** The open ask that ends first if nothing happens. */
export const riskiest = () => [...store.rows.values()].filter(isOpen).sort(byRisk)[0];

const warned = new Set();

/** Gives what to say of asks that came at risk since it was asked last. */
export function risks(at) {
  const fresh = [...store.rows.values()].filter((row) => atRisk(row, at) && !warned.has(row.request_id));
  for (const row of fresh) warned.add(row.request_id);
  return fresh.map((row) => say.spoken.risk(row.from, row.to)).join(". ");
}

export function openAsks({ cancel }) {
  const list = h("ul"), count = h("span", { class: "badge" }), risky = h("span", { class: "badge warn push", hidden: true });
  const fold = h("button", { class: "fold", "aria-expanded": "false", on: { click: () => { el.classList.toggle("all"); draw(); } } });
  const none = h("p", { class: "nothing" }, W.nothing);
  const el = h("section", { class: "panel open", "aria-label": W.open }, h("header", null, h("h2", null, W.open), count, risky), list, fold, none);
  const items = new Map();
  let sorted = [];

  const hands = () => el.matches(":hover") || el.contains(document.activeElement);

  function draw() {
    const at = now();
    const rows = [...store.rows.values()].filter(isOpen);
    const ids = new Set(rows.map((row) => row.request_id));
    if (hands()) sorted = [...sorted.filter((row) => ids.has(row.request_id)).map((row) => store.rows.get(row.request_id)), ...rows.filter((row) => !items.has(row.request_id))];
    else sorted = rows.sort(byRisk);
    const shown = sorted.slice(0, SHOWN);
    const keep = new Set(shown.map((row) => row.request_id));
    for (const [rid, item] of items) if (!keep.has(rid)) { item.el.remove(); items.delete(rid); }
    shown.forEach((row, place) => {
      let item = items.get(row.request_id);
      if (!item) { item = newItem(row); items.set(row.request_id, item); }
      item.update(row, at);
      if (list.children[place] !== item.el) list.insertBefore(item.el, list.children[place] ?? null);
    });
    const total = Math.max(store.open, rows.length);
    count.textContent = number(total);
    count.hidden = !total;
    none.hidden = total > 0 || !store.ready;
    const risk = rows.filter((row) => atRisk(row, at));
    risky.hidden = !risk.length;
    risky.textContent = W.risk(risk.length);
    const rest = total - 1;
    fold.hidden = rest < 1;
    fold.setAttribute("aria-expanded", String(el.classList.contains("all")));
    fold.replaceChildren(el.classList.contains("all") ? say.row.less : W.more(rest), icon("down"));
  }

  function newItem(row) {
    const age = h("span", { class: "age num" }), pulse = newPulse(), text = h("span", { class: "note" }), left = h("span", { class: "push" });
    const button = h("button", { class: "btn tiny", on: { click: () => cancel(store.rows.get(row.request_id)) } }, say.row.cancel, h("span", { class: "sr" }, say.spoken.of(row.from, row.to)));
    const foot = h("p", { class: "foot" }, text, left, store.canCancel && button);
    const name = (who) => [square(who, store.agents.get(who), "s"), bdi(short(who)), spokenPresence(who, store.agents.get(who))];
    const item = h("li", null, h("a", { class: "route", href: exchangeLink(row) }, h("span", null, name(row.from), icon("to"), name(row.to)), age), pulse, foot);
    let drawn = "";
    return { el: item, update(fresh, at) {
      const risk = atRisk(fresh, at), queued = fresh.status === "queued";
      item.className = risk ? "risk" : "";
      age.textContent = timer(at - fresh.started_at);
      pulse.toggleAttribute("hidden", queued);
      if (!queued) drawOpen(pulse, fresh, at);
      const key = `${risk}${queued}${fresh.note}`;
      if (key !== drawn) {
        drawn = key;
        foot.className = `foot${risk ? " risk" : ""}`;
        text.replaceChildren(...(queued ? [icon("queued"), h("span", null, say.pending.queued(named(fresh.to)))] : risk ? [] : [fresh.note ? bdi(fresh.note) : say.pending.waiting]));
      }
      left.textContent = queued ? "" : countdown(fresh, at, true);
      left.className = risk ? "" : "push";
    } };
  }

  const stop = [on("rows", draw), on("state", draw), on("agents", () => showPresence(el, store.agents))];
  el.addEventListener("mouseleave", draw);
  draw();
  return { el, tick: draw, close: () => stop.forEach((end) => end()) };
}

export function lastHour(totalled) {
  const body = h("div", null, h("p", { class: "nothing" }, say.wait));
  const el = h("section", { class: "panel hour wide", "aria-label": W.hour }, h("header", null, h("h2", null, W.hour)), body);
  let due = 0, closed = false, chosen = 0;

  // One bar is in the order of focus; the arrows lead to the others.
  body.addEventListener("keydown", (event) => {
    const all = [...body.querySelectorAll("[data-start]")], step = { ArrowLeft: -1, ArrowRight: 1, Home: -60, End: 60 }[event.key];
    const to = step && all[Math.max(0, Math.min(all.length - 1, all.indexOf(event.target) + step))];
    if (!to || !event.target.dataset.start) return;
    event.preventDefault();
    chosen = Number(to.dataset.start);
    for (const bar of all) bar.setAttribute("tabindex", bar === to ? "0" : "-1");
    to.focus();
  });

  async function load() {
    due = Date.now() + 10000;
    const hour = await ask("/ui/api/hour").catch(() => null);
    if (closed) return;
    if (!hour) { if (!body.querySelector("dl")) renew(body, h("p", { class: "nothing" }, say.trouble.load)); return; }
    if (!hour.complete) due = Date.now() + 1000;
    draw(hour);
    totalled(hour.total);
  }

  function draw(hour) {
    const figure = (name, value, more = "") => h("div", null, h("dt", null, name), h("dd", null, h("a", { href: `/ui?${more}from=-1h` }, value)));
    const failed = hour.failed;
    const most = Math.max(4, ...hour.minutes.map(([, asks]) => asks));
    const minutes = hour.minutes.filter(([, asks]) => asks).map(([start]) => start);
    if (!minutes.includes(chosen)) chosen = minutes.at(-1);
    const bars = hour.minutes.filter(([, asks]) => asks).map(([start, asks, bad]) => {
      const x = ((start - hour.since) / 60000) * (328 / 60), tall = Math.max(2, (asks / most) * 44);
      const foot = bad ? Math.max(2, (bad / most) * 44) : 0;
      const minute = (ms) => { const d = new Date(ms); return new Date(ms - d.getTimezoneOffset() * 60000).toISOString().slice(0, 16); };
      return svg("a", { href: `/ui?from=${minute(start)}&to=${minute(start + 60000)}`, tabindex: start === chosen ? 0 : -1, data: { start }, "aria-label": W.minute(hm(start), asks, bad) },
        svg("title", null, W.minute(hm(start), asks, bad)),
        svg("rect", { class: "hit", x: x.toFixed(1), y: 0, width: 5.4, height: 44 }),
        svg("rect", { class: "a", x: x.toFixed(1), y: (44 - tall).toFixed(1), width: 4.2, height: tall.toFixed(1) }),
        foot > 0 && svg("rect", { class: "f", x: x.toFixed(1), y: (44 - foot).toFixed(1), width: 4.2, height: foot.toFixed(1) }));
    });
    const ticks = [0, 15, 30, 45].map((m) => h("span", null, hm(hour.since + m * 60000)));
    renew(body,
      h("dl", { class: "figs" }, figure(W.asks, number(hour.asks)), figure(W.answered, hour.answered === null ? say.unknown : percent(hour.answered), "status=answered&"), figure(W.median, hour.median === null ? say.unknown : about(hour.median)), figure(W.p95, hour.p95 === null ? say.unknown : about(hour.p95))),
      svg("svg", { class: "hist", viewBox: "0 0 328 44", preserveAspectRatio: "none", role: "group", "aria-label": W.bars(hour.asks, failed) }, bars),
      h("p", { class: "axis", "aria-hidden": "true" }, ticks, h("span", null, W.now)));
  }

  load();
  return { el, tick() { if (Date.now() > due && !document.hidden && el.isConnected) load(); }, close() { closed = true; } };
}

export const percent = (part) => say.unit.part(part >= 0.99995 ? "100" : (Math.floor(part * 1000) / 10).toFixed(1));
