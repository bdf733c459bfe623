// The view Agents: one row each; one unfolded with what is configured, its errors and its links.

import { bdi, fill, h, icon } from "./dom.js";
import { drawOpen, newPulse } from "./pulse.js";
import { percent } from "./rail.js";
import { exchangeLink } from "./row.js";
import { badge, isOpen, STATUS } from "./status.js";
import { ask, on, store, take } from "./store.js";
import { about, age, hm, now, stamp, timer, took, when } from "./time.js";
import { presence, square } from "./who.js";

const RANGES = [["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"]];
const LOW = 0.9, ENOUGH = 5, MANY = 12;
const number = (n) => n.toLocaleString("en");
const HEADS = [
  ["name", "Agent", (a) => a.name], ["link", "Link", (a) => ["offline", "reconnecting", "online"].indexOf(presence(a))],
  ["work", "Working on", (a) => -(a.works?.started_at ?? 9e15)], ["queue", "Queue", (a) => -a.queue], ["in", "Asks in", (a) => -a.counts.asks],
  ["out", "Asks out", (a) => -a.asks_out], ["answered", "Answered", (a) => a.counts.answered ?? 2], ["median", "Median", (a) => -(a.counts.median ?? -1)],
  ["error", "Last error", (a) => -(a.last_error?.at ?? 0)],
];
const NUMBERS = new Set(["queue", "in", "out", "answered", "median"]);
const low = (a) => a.counts.answered !== null && a.counts.answered < LOW && a.counts.asks - a.counts.open >= ENOUGH;
const trouble = (a) => presence(a) !== "online" || a.works || a.queue || low(a);
const worst = (a) => (presence(a) === "online" ? 0 : -4) + (low(a) ? -3 : 0) + (a.queue ? -2 : 0) + (a.works ? -1 : 0);

export function agents(query, app) {
  const view = {
    range: RANGES.some(([range]) => range === query.get("range")) ? query.get("range") : "1h",
    sort: HEADS.some(([key]) => key === query.get("sort")) || query.get("sort") === "worst" ? query.get("sort") : "name",
    down: query.get("dir") === "desc", open: query.get("a") ?? "", only: query.get("only") === "trouble", find: query.get("find") ?? "",
  };
  const sum = h("div", { class: "sum" });
  const body = h("tbody"), heads = h("tr"), cards = h("ul", { class: "bots" });
  const none = h("div", { hidden: true });
  const table = h("section", { class: "panel wide", "aria-label": "Agents" }, h("table", { class: "table" }, h("thead", null, heads), body), none);
  const el = h("div", { class: "page" }, sum, table, h("section", { class: "panel phone", "aria-label": "Agents" }, cards));
  let rows = [], whole = true, due = 0, closed = false, unfolded = null;
  const pulses = new Map();

  function address() {
    const made = new URLSearchParams();
    if (view.range !== "1h") made.set("range", view.range);
    if (view.sort !== "name") made.set("sort", view.sort);
    if (view.down) made.set("dir", "desc");
    if (view.only) made.set("only", "trouble");
    if (view.find) made.set("find", view.find);
    if (view.open) made.set("a", view.open);
    app.replace("/ui/agents", made);
  }

  async function load() {
    due = Date.now() + 10000;
    const range = view.range;
    const found = await ask(`/ui/api/agents?range=${range}`).catch(() => null);
    if (!found || closed || range !== view.range) return;
    if (!found.complete) due = Date.now() + 700;
    rows = found.agents;
    whole = found.complete;
    take(rows.map((row) => row.works).filter((row) => row && !store.rows.has(row.request_id)));
    draw();
  }

  const seg = h("div", { class: "seg push", role: "group", "aria-label": "Range" }, RANGES.map(([range, label]) => h("button", { "aria-pressed": String(range === view.range), on: { click: (event) => {
    view.range = range;
    for (const one of event.currentTarget.parentElement.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
    address();
    load();
  } } }, label)));
  const only = h("button", { class: "pick", "aria-pressed": String(view.only), on: { click: () => { view.only = !view.only; only.setAttribute("aria-pressed", String(view.only)); address(); draw(); } } }, "Busy or in trouble");
  const worstFirst = h("button", { class: "pick", on: { click: () => { view.sort = view.sort === "worst" ? "name" : "worst"; view.down = false; address(); draw(); } } }, "Worst first");
  const find = h("input", { class: "field", type: "search", placeholder: "Filter agents", "aria-label": "Filter agents", value: view.find, on: { input: () => { view.find = find.value; address(); draw(); } } });
  const figures = h("span", { class: "figures" });
  sum.append(h("h1", null, "Agents"), figures, seg);

  function draw() {
    const all = rows.length ? rows : [...store.agents.values()].map((a) => ({ ...a, counts: { asks: 0, open: 0, answered: null, median: null }, asks_out: 0, queue: 0, pending: true }));
    const online = all.filter((a) => presence(a) === "online").length;
    const queued = all.reduce((n, a) => n + a.queue, 0);
    const open = store.open;
    fill(figures, h("p", null, h("b", null, String(online)), ` of ${all.length} online`), h("p", null, h("b", null, number(open)), ` open ask${open === 1 ? "" : "s"}`), queued ? h("p", { class: "wide" }, h("b", null, number(queued)), " queued") : "", !whole && h("p", { class: "dim" }, "counting…"));
    if (all.length > MANY && !find.isConnected) seg.before(h("span", { class: "tools" }, find, only, worstFirst));
    only.classList.toggle("on", view.only);
    worstFirst.classList.toggle("on", view.sort === "worst");
    fill(heads, HEADS.map(([key, label]) => h("th", { class: NUMBERS.has(key) ? "n" : null, "aria-sort": view.sort === key ? (view.down ? "descending" : "ascending") : null }, h("button", { on: { click: () => {
      view.down = view.sort === key ? !view.down : false;
      view.sort = key;
      address();
      draw();
    } } }, label, view.sort === key && icon(view.down ? "down" : "up")))));
    const names = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
    const value = view.sort === "worst" ? worst : HEADS.find(([key]) => key === view.sort)[2];
    const wanted = view.find.toLowerCase();
    const shown = all.filter((a) => (!view.only || trouble(a)) && (!wanted || `${a.name} ${a.description ?? ""}`.toLowerCase().includes(wanted)));
    shown.sort((a, b) => { const x = value(a), y = value(b); const d = typeof x === "string" ? names(a, b) : x - y; return (view.down ? -1 : 1) * (d || 0) || names(a, b); });
    const held = document.activeElement?.dataset?.agent;
    pulses.clear();
    body.replaceChildren(...shown.flatMap((a) => [line(a), view.open === a.name && unfoldedRow(a)].filter(Boolean)));
    cards.replaceChildren(...shown.map(card));
    if (held) el.querySelector(`[data-agent="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
    none.hidden = shown.length > 0 || !store.ready;
    if (!none.hidden) fill(none, h("div", { class: "none" }, h("h2", null, all.length ? "No agent matches" : "No agents are configured"), h("p", { class: "sub" }, all.length ? "Take a filter away." : ["Add one with: ", h("span", { class: "mono" }, "hermes-bridge agents add NAME")])));
    tick(now());
  }

  const list = (a, label, role, more = "") => h("a", { href: `/ui?agent=${encodeURIComponent(a.name)}&role=${role}&from=${{ "1h": "-1h", "24h": "-24h", "7d": "-7d" }[view.range]}${more}` }, label);

  function linkCell(a) {
    const how = presence(a);
    const state = how === "online" ? "Online" : h("b", { class: `st s-${how === "offline" ? "off" : "warn"}` }, icon(how === "offline" ? "away" : "cut"), how === "offline" ? "Offline" : "Reconnecting");
    const since = !a.since ? "never seen" : how === "online" ? `for ${age(now() - a.since)}` : how === "offline" ? `since ${when(a.since)}` : `lost ${age(now() - a.since)} ago`;
    return [state, h("span", null, since)];
  }

  function doing(a) {
    const row = a.works && (store.rows.get(a.works.request_id) ?? a.works);
    if (row && isOpen(row)) {
      const pulse = newPulse(), time = h("span", { class: "num" });
      pulses.set(a.name, [pulse, time, row.request_id, row]);
      return h("a", { class: "doing", href: exchangeLink(row) }, h("p", null, "for ", bdi(row.from), " ", time), pulse);
    }
    if (a.queue) return h("p", { class: "sub" }, `${a.queue} queued, oldest `, h("span", { class: "num" }, timer(now() - a.oldest)));
    return h("span", { class: "dim" }, a.pending ? "–" : "Idle");
  }

  const errorCell = (a) => {
    if (!a.last_error) return [h("span", { class: "dim" }, "–")];
    const known = STATUS[a.last_error.status];
    return [list(a, known?.label ?? a.last_error.status, "target", `&status=${a.last_error.status}`), h("span", null, `${when(a.last_error.at)}, asked by `, bdi(a.last_error.from))];
  };

  function line(a) {
    const open = view.open === a.name;
    const toggle = () => { view.open = open ? "" : a.name; unfolded = null; address(); draw(); };
    const answered = a.counts.answered;
    return h("tr", { class: open ? "open-row" : null },
      h("td", null, h("button", { class: "who", "aria-expanded": String(open), data: { agent: a.name }, title: a.name, on: { click: toggle } }, square(a.name, a, "l"), h("span", { class: "label" }, h("bdi", null, a.name), a.description && h("p", { title: a.description }, a.description)))),
      h("td", { class: "lnk" }, linkCell(a)), h("td", null, doing(a)),
      h("td", { class: `n${a.queue ? "" : " dim"}` }, number(a.queue)),
      h("td", { class: "n" }, list(a, number(a.counts.asks), "target")), h("td", { class: "n" }, list(a, number(a.asks_out), "asker")),
      h("td", { class: `n${low(a) ? " badn" : ""}` }, answered === null ? "–" : percent(answered)),
      h("td", { class: "n" }, a.counts.median === null ? "–" : about(a.counts.median)),
      h("td", { class: `err${STATUS[a.last_error?.status]?.tone === "ref" ? " ref" : ""}` }, errorCell(a)));
  }

  function card(a) {
    const how = presence(a), row = a.works && (store.rows.get(a.works.request_id) ?? a.works);
    const state = how !== "online" ? h("span", { class: `st s-${how === "offline" ? "off" : "warn"}` }, icon(how === "offline" ? "away" : "cut"), how === "offline" ? "Offline" : "Reconnecting") : row && isOpen(row) ? badge(row, now()) : h("span", { class: "dim" }, "Idle");
    const error = a.last_error && now() - a.last_error.at < 3600000 && h("p", { class: "v" }, `${STATUS[a.last_error.status]?.label ?? a.last_error.status} ${hm(a.last_error.at)}, asked by `, bdi(a.last_error.from));
    return h("li", null, h("a", { href: `/ui?agent=${encodeURIComponent(a.name)}` }, square(a.name, a, "l"), h("div", null,
      h("p", { class: "t" }, h("b", null, bdi(a.name)), state),
      h("p", { class: "u num" }, h("span", null, `${number(a.counts.asks)} in, ${number(a.asks_out)} out`), h("span", { class: low(a) ? "badn" : "" }, a.counts.answered === null ? "" : `${percent(a.counts.answered)} answered`), h("span", null, a.counts.median === null ? "" : about(a.counts.median))),
      a.queue ? h("p", { class: "u" }, `${a.queue} queued, oldest ${timer(now() - a.oldest)}`) : "", error || "")));
  }

  function unfoldedRow(a) {
    const cell = h("td", { colspan: HEADS.length });
    if (unfolded?.name === a.name) cell.append(more(a, unfolded));
    else {
      cell.append(h("p", { class: "dim" }, "…"));
      ask(`/ui/api/agents/${encodeURIComponent(a.name)}`).then((found) => { take(found.errors.filter((row) => !store.rows.has(row.request_id))); unfolded = found; if (view.open === a.name) draw(); }, () => cell.replaceChildren("Could not load this."));
    }
    return h("tr", { class: "more-row open-row" }, cell);
  }

  function more(a, found) {
    const list_ = (items) => items.flatMap((item, i) => [i ? ", " : "", item]);
    const pair = (name, ...value) => [h("dt", null, name), h("dd", null, value)];
    return h("div", { class: "facets" },
      h("dl", { class: "kv" },
        a.description ? pair("Description", bdi(a.description)) : [], a.skills ? pair("Skills", a.skills.join(", ")) : [],
        pair("May ask", found.may_ask === null ? "everybody" : found.may_ask.length ? list_(found.may_ask.map((name) => bdi(name))) : "nobody"),
        pair("Rate", found.rate_per_minute ? `${number(found.rate_per_minute)} asks a minute` : "no limit"), pair("Asks waiting", `up to ${number(found.max_pending)}`),
        pair("A call is held", `up to ${took(found.hold_ms)}`), a.client ? pair("Client", h("span", { class: "mono" }, a.client)) : [], a.protocol ? pair("Protocol", String(a.protocol)) : [],
        h("dt", null), h("dd", null, h("a", { class: "more", href: `/ui?agent=${encodeURIComponent(a.name)}` }, "Show its exchanges"), h("a", { class: "more", href: `/ui/map?a=${encodeURIComponent(a.name)}` }, "Show on the map"))),
      h("div", null, h("h3", null, "Last errors"), found.errors.length ? h("ul", { class: "errors" }, found.errors.map((row) => h("li", null, h("a", { href: exchangeLink(row) }, h("time", null, when(row.started_at)), badge(row, now()), h("span", null, "asked by ", bdi(row.from)), h("span", { class: "cut", dir: "auto" }, row.error ?? row.message))))) : h("p", { class: "dim" }, "None.")),
      h("div", null, h("h3", null, "Links since the relay started"), found.links.length ? h("ul", { class: "errors" }, found.links.map((link) => h("li", null, h("span", { class: "num" }, stamp(link.since).replace(/\.\d+$/, "")), h("span", null, link.until ? `for ${age(link.until - link.since)}${link.superseded ? ", then superseded" : ", then lost"}` : "lasts"), h("span", { class: "cut mono" }, link.client || `protocol ${link.protocol}`)))) : h("p", { class: "dim" }, "None.")));
  }

  function tick(at) {
    for (const [name, [pulse, time, rid, known]] of pulses) {
      const row = store.rows.get(rid) ?? known;
      if (!isOpen(row)) { pulses.delete(name); due = Math.min(due, Date.now() + 300); continue; }
      time.textContent = timer(at - row.started_at);
      drawOpen(pulse, row, at, { ticks: false });
    }
    if (Date.now() > due && !document.hidden) load();
  }

  const stop = [on("agents", () => {
    for (const row of rows) Object.assign(row, store.agents.get(row.name));
    due = Math.min(due, Date.now() + 500);
    draw();
  }), on("rows", () => { due = Math.min(due, Date.now() + 2000); }), on("state", () => { if (!rows.length) draw(); })];
  draw();
  load();
  return { el, title: "Agents", tab: "agents", first: find, tick, close() { closed = true; for (const end of stop) end(); } };
}
