// Beside the feed: Open asks, the riskiest first, and the last hour in figures and bars.

import { bdi, h, icon, svg } from "./dom.js";
import { drawOpen, newPulse } from "./pulse.js";
import { countdown, exchangeLink } from "./row.js";
import { atRisk, isOpen } from "./status.js";
import { ask, on, store } from "./store.js";
import { about, hm, now, timer } from "./time.js";
import { short, square } from "./who.js";

const SHOWN = 100;

export function openAsks({ cancel, urgent }) {
  const list = h("ul"), count = h("span", { class: "badge" }), risky = h("span", { class: "badge warn push", hidden: true });
  const fold = h("button", { class: "fold", "aria-expanded": "false", on: { click: () => { el.classList.toggle("all"); draw(); } } });
  const none = h("p", { class: "nothing" }, "Nothing is waiting.");
  const el = h("section", { class: "panel open", "aria-label": "Open asks" }, h("header", null, h("h2", null, "Open asks"), count, risky), list, fold, none);
  const items = new Map();
  const warned = new Set();
  let sorted = [];

  const rank = (row) => (row.status === "queued" ? 1e15 : 0) + (row.deadline ?? 0);
  const hands = () => el.matches(":hover") || el.contains(document.activeElement);

  function draw() {
    const at = now();
    const rows = [...store.rows.values()].filter(isOpen);
    const ids = new Set(rows.map((row) => row.request_id));
    if (hands()) sorted = [...sorted.filter((row) => ids.has(row.request_id)).map((row) => store.rows.get(row.request_id)), ...rows.filter((row) => !items.has(row.request_id))];
    else sorted = rows.sort((a, b) => rank(a) - rank(b) || a.started_at - b.started_at);
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
    count.textContent = total.toLocaleString("en");
    count.hidden = !total;
    none.hidden = total > 0 || !store.ready;
    const risk = rows.filter((row) => atRisk(row, at));
    risky.hidden = !risk.length;
    risky.textContent = `${risk.length} at risk`;
    for (const row of risk) if (!warned.has(row.request_id)) { warned.add(row.request_id); urgent(`Ask from ${row.from} to ${row.to} is at risk`); }
    const rest = total - 1;
    fold.hidden = rest < 1;
    fold.setAttribute("aria-expanded", String(el.classList.contains("all")));
    fold.replaceChildren(el.classList.contains("all") ? "Show less" : `${rest.toLocaleString("en")} more open ask${rest === 1 ? "" : "s"}`, icon("down"));
  }

  function newItem(row) {
    const age = h("span", { class: "age num" }), pulse = newPulse(), text = h("span", { class: "note" }), left = h("span", { class: "push" });
    const button = h("button", { class: "btn tiny", on: { click: () => cancel(store.rows.get(row.request_id)) } }, "Cancel ask", h("span", { class: "sr" }, ` of ${row.from} to ${row.to}`));
    const foot = h("p", { class: "foot" }, text, left, store.canCancel && button);
    const name = (who) => [square(who, store.agents.get(who), "s"), h("bdi", { dir: "auto" }, short(who))];
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
        text.replaceChildren(...(queued ? [icon("queued"), h("span", null, "Queued until ", bdi(fresh.to), " is back")] : risk ? [] : [fresh.note ? bdi(fresh.note) : "Waiting for the answer"]));
      }
      left.textContent = queued ? "" : countdown(fresh, at, true);
      left.className = risk ? "" : "push";
    } };
  }

  const stop = [on("rows", draw), on("state", draw), on("agents", () => {
    for (const dot of el.querySelectorAll("i[data-presence]")) { const agent = store.agents.get(dot.dataset.presence); if (agent) dot.className = agent.presence; }
  })];
  el.addEventListener("mouseleave", draw);
  draw();
  return { el, tick: draw, close: () => stop.forEach((end) => end()), riskiest: () => sorted[0] };
}

export function lastHour(totalled) {
  const body = h("div", null, h("p", { class: "nothing" }, "…"));
  const el = h("section", { class: "panel hour wide", "aria-label": "Last hour" }, h("header", null, h("h2", null, "Last hour")), body);
  let due = 0, closed = false;

  async function load() {
    due = Date.now() + 10000;
    const hour = await ask("/ui/api/hour").catch(() => null);
    if (!hour || closed) return;
    if (!hour.complete) due = Date.now() + 1000;
    draw(hour);
    totalled(hour.total);
  }

  function draw(hour) {
    const figure = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
    const failed = hour.failed;
    const most = Math.max(4, ...hour.minutes.map(([, asks]) => asks));
    const bars = hour.minutes.filter(([, asks]) => asks).map(([start, asks, bad]) => {
      const x = ((start - hour.since) / 60000) * (328 / 60), tall = Math.max(2, (asks / most) * 44);
      const foot = bad ? Math.max(2, (bad / most) * 44) : 0;
      const minute = (ms) => { const d = new Date(ms); return new Date(ms - d.getTimezoneOffset() * 60000).toISOString().slice(0, 16); };
      return svg("a", { href: `/ui?from=${minute(start)}&to=${minute(start + 60000)}`, tabindex: "-1", "aria-label": `${hm(start)}: ${asks} asks, ${bad} without an answer` },
        svg("title", null, `${hm(start)}: ${asks} asks, ${bad} without an answer`),
        svg("rect", { class: "hit", x: x.toFixed(1), y: 0, width: 5.4, height: 44 }),
        svg("rect", { class: "a", x: x.toFixed(1), y: (44 - tall).toFixed(1), width: 4.2, height: tall.toFixed(1) }),
        foot && svg("rect", { class: "f", x: x.toFixed(1), y: (44 - foot).toFixed(1), width: 4.2, height: foot.toFixed(1) }));
    });
    const ticks = [0, 15, 30, 45].map((m) => h("span", null, hm(hour.since + m * 60000)));
    body.replaceChildren(
      h("dl", { class: "figs" }, figure("Asks", hour.asks.toLocaleString("en")), figure("Answered", hour.answered === null ? "–" : percent(hour.answered)), figure("Median", hour.median === null ? "–" : about(hour.median)), figure("p95", hour.p95 === null ? "–" : about(hour.p95))),
      svg("svg", { class: "hist", viewBox: "0 0 328 44", preserveAspectRatio: "none", role: "group", "aria-label": `${hour.asks} asks in the last hour, ${failed} without an answer` }, bars),
      h("p", { class: "axis", "aria-hidden": "true" }, ticks, h("span", null, "now")));
  }

  load();
  return { el, tick() { if (Date.now() > due && !document.hidden && el.isConnected) load(); }, close() { closed = true; } };
}

export const percent = (part) => (part >= 0.99995 ? "100 %" : `${(Math.floor(part * 1000) / 10).toFixed(1)} %`);
