// The view Agents: one row each; one unfolded with what is configured, its errors and its links.

import { arrange, bdi, fill, h, icon, keepFocus, renew, says, selected } from "./dom.js";
import { drawOpen, newPulse } from "./pulse.js";
import { percent } from "./rail.js";
import { exchangeLink } from "./row.js";
import { badge, isOpen, STATUS } from "./status.js";
import { ask, on, store, take } from "./store.js";
import { about, age, hm, iso, now, stamp, timer, title, took, when } from "./time.js";
import { linked, named, presence, short, square } from "./who.js";
import { number, say } from "./words.js";

const W = say.agents, RANGES = Object.entries(W.ranges);
const LOW = 0.9, ENOUGH = 5, MANY = 12;
const HEADS = [
  ["name", (a) => a.name], ["link", (a) => ["offline", "reconnecting", "online"].indexOf(presence(a))],
  ["work", (a) => -(a.works?.started_at ?? 9e15)], ["queue", (a) => -a.queue], ["in", (a) => -a.counts.asks],
  ["out", (a) => -a.asks_out], ["answered", (a) => a.counts.answered ?? 2], ["median", (a) => -(a.counts.median ?? -1)],
  ["error", (a) => -(a.last_error?.at ?? 0)],
];
/** Sorted by these, the most stands first. */
const MOST_FIRST = new Set(["queue", "in", "out", "median", "error"]);
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
  const table = h("section", { class: "panel wide", "aria-label": say.views.agents }, h("table", { class: "table" }, h("thead", null, heads), body), none);
  const el = h("div", { class: "page waiting" }, sum, table, h("section", { class: "panel phone", "aria-label": say.views.agents }, cards));
  const narrow = matchMedia("(max-width: 639px)");
  let rows = [], whole = true, failed = false, told = false, due = 0, closed = false, detail = null, revealed = !view.open;
  const lines = new Map(), pulses = new Map();

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
    if (view.open) learn(view.open);
    const found = await ask(`/ui/api/agents?range=${range}`).catch(() => null);
    if (closed || range !== view.range) return;
    failed = !found;
    told = true;
    if (found) {
      if (!found.complete) due = Date.now() + 700;
      rows = found.agents;
      whole = found.complete;
      take(rows.map((row) => row.works).filter((row) => row && !store.rows.has(row.request_id)));
    }
    refresh();
  }

  /** Reads what an unfolded agent shows. */
  async function learn(name) {
    const found = await ask(`/ui/api/agents/${encodeURIComponent(name)}`).catch(() => null);
    if (closed || view.open !== name) return;
    if (found) take(found.errors.filter((row) => !store.rows.has(row.request_id)));
    if (found || detail?.name !== name) detail = found ?? { name, failed: true };
    refresh();
  }

  function toggle(name) {
    view.open = view.open === name ? "" : name;
    detail = null;
    address();
    draw();
    if (view.open) learn(name);
  }

  /** Draws what the relay told; not while somebody selects text here. */
  const refresh = () => { if (!selected(table) && !selected(cards)) draw(); };

  const seg = h("div", { class: "seg push", role: "group", "aria-label": W.range }, RANGES.map(([range, label]) => h("button", { "aria-pressed": String(range === view.range), on: { click: (event) => {
    view.range = range;
    for (const one of event.currentTarget.parentElement.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
    address();
    load();
  } } }, label)));
  const only = h("button", { class: "pick", "aria-pressed": String(view.only), on: { click: () => { view.only = !view.only; only.setAttribute("aria-pressed", String(view.only)); address(); draw(); } } }, W.trouble);
  const worstFirst = h("button", { class: "pick", on: { click: () => { view.sort = view.sort === "worst" ? "name" : "worst"; view.down = false; address(); draw(); } } }, W.worst);
  const find = h("input", { class: "field", type: "search", placeholder: W.filter, "aria-label": W.filter, value: view.find, on: { input: () => { view.find = find.value; address(); draw(); } } });
  const figures = h("span", { class: "figures" });
  sum.append(h("h1", null, say.views.agents), figures, seg);

  function draw() {
    if (told && (detail || !view.open)) el.classList.remove("waiting");
    const all = rows.length ? rows : [...store.agents.values()].map((a) => ({ ...a, counts: { asks: 0, open: 0, answered: null, median: null }, asks_out: 0, queue: 0, pending: true }));
    const online = all.filter((a) => presence(a) === "online").length;
    const queued = all.reduce((n, a) => n + a.queue, 0);
    const open = store.open;
    renew(figures, h("p", null, h("b", null, String(online)), W.online(all.length)), h("p", null, h("a", { href: "/ui?status=open" }, h("b", null, number(open)), W.open(open))), queued ? h("p", { class: "wide" }, h("a", { href: "/ui?status=queued" }, h("b", null, number(queued)), W.queued)) : "", failed ? h("p", { class: "badn" }, say.trouble.load) : !whole && h("p", { class: "dim" }, W.counting),
      rows.length > 0 && view.open && !all.some((a) => a.name === view.open) && h("p", null, say.refused.unknownAgent(named(view.open))));
    if (all.length > MANY && !find.isConnected) seg.before(h("span", { class: "tools" }, find, only, worstFirst));
    only.classList.toggle("on", view.only);
    worstFirst.classList.toggle("on", view.sort === "worst");
    renew(heads, HEADS.map(([key]) => h("th", { class: NUMBERS.has(key) ? "n" : null, "aria-sort": view.sort === key ? (falls(key) ? "descending" : "ascending") : null }, h("button", { on: { click: () => {
      view.down = view.sort === key ? !view.down : false;
      view.sort = key;
      address();
      draw();
    } } }, W.heads[key], view.sort === key && icon(falls(key) ? "down" : "up")))));
    const names = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
    const value = view.sort === "worst" ? worst : HEADS.find(([key]) => key === view.sort)[1];
    const wanted = view.find.toLowerCase();
    const shown = all.filter((a) => (!view.only || trouble(a)) && (!wanted || `${a.name} ${a.description ?? ""}`.toLowerCase().includes(wanted)));
    shown.sort((a, b) => { const x = value(a), y = value(b); const d = typeof x === "string" ? names(a, b) : x - y; return (view.down ? -1 : 1) * (d || 0) || names(a, b); });
    for (const name of [...lines.keys()]) if (!all.some((a) => a.name === name)) { lines.delete(name); pulses.delete(name); }
    keepFocus(el, () => {
      arrange(body, shown.flatMap((a) => { const { row, more } = lineOf(a); return view.open === a.name ? [row, more] : [row]; }));
      arrange(cards, shown.map((a) => lines.get(a.name).card));
    });
    none.hidden = shown.length > 0 || !store.ready;
    if (!none.hidden) fill(none, h("div", { class: "none" }, h("h2", null, all.length ? W.noMatch : W.none), h("p", { class: "sub" }, all.length ? W.takeAway : [W.add, h("span", { class: "mono" }, W.addWith)])));
    tick(now());
    if (!revealed && rows.length && el.isConnected) reveal();
  }

  /** Brings the agent that the address names onto the screen. */
  function reveal() {
    revealed = true;
    const line = lines.get(view.open), at = (narrow.matches ? line?.card : line?.row)?.getBoundingClientRect();
    if (at && (at.top < 60 || at.bottom > innerHeight - 60)) scrollBy({ top: at.top - 120 });
  }

  /** The lines of an agent, brought up to date: in the table, below it when unfolded, and its card. */
  function lineOf(a) {
    let line = lines.get(a.name);
    if (!line) {
      const cell = h("td", { colspan: HEADS.length });
      line = { row: h("tr", { data: { key: a.name } }), cell, more: h("tr", { class: "more-row open-row", data: { key: `${a.name}\n` } }, cell), card: h("li", { data: { key: a.name } }) };
      lines.set(a.name, line);
    }
    line.agent = a;
    const open = view.open === a.name;
    line.row.className = open ? "open-row" : "";
    if (renew(line.row, cells(a))) {
      const pulse = line.row.querySelector(".pulse");
      if (pulse) pulses.set(a.name, [pulse, line.row.querySelector(".doing .num")]); else pulses.delete(a.name);
    }
    renew(line.card, card(a), open && narrow.matches && unfolded(a));
    if (open) renew(line.cell, unfolded(a));
    return line;
  }

  const falls = (key) => view.down !== MOST_FIRST.has(key);
  const works = (a) => a.works && (store.rows.get(a.works.request_id) ?? a.works);
  const list = (a, label, role, more = "") => h("a", { href: `/ui?agent=${encodeURIComponent(a.name)}&role=${role}&from=${{ "1h": "-1h", "24h": "-24h", "7d": "-7d" }[view.range]}${more}` }, label);

  function linkCell(a) {
    const how = presence(a);
    const state = how === "online" ? W.presence.online : h("b", { class: `st s-${how === "offline" ? "off" : "warn"}` }, icon(how === "offline" ? "away" : "cut"), W.presence[how]);
    const since = !a.since ? W.never : how === "online" ? W.for(age(now() - a.since)) : how === "offline" ? W.since(when(a.since)) : W.lost(age(now() - a.since));
    return [state, h("span", null, since)];
  }

  function doing(a) {
    const row = works(a);
    if (row && isOpen(row)) return h("a", { class: "doing", href: exchangeLink(row) }, h("p", null, W.doing(named(row.from)), h("span", { class: "num" })), newPulse());
    if (a.queue) return h("p", { class: "sub" }, W.waiting(a.queue), h("span", { class: "num" }, timer(now() - a.oldest)));
    return h("span", { class: "dim" }, a.pending ? say.unknown : W.idle);
  }

  const errorCell = (a) => {
    if (!a.last_error) return [h("span", { class: "dim" }, say.unknown)];
    const known = STATUS[a.last_error.status];
    return [list(a, known?.label ?? a.last_error.status, "target", `&status=${a.last_error.status}`), h("span", null, W.lastError(when(a.last_error.at), named(a.last_error.from)))];
  };

  function cells(a) {
    const answered = a.counts.answered;
    return [
      h("td", null, h("button", { class: "who", "aria-expanded": String(view.open === a.name), data: { agent: a.name }, title: a.name, on: { click: () => toggle(a.name) } }, square(a.name, a, "l"), h("span", { class: "label" }, bdi(short(a.name)), a.description && h("p", { title: a.description }, bdi(a.description))))),
      h("td", { class: "lnk" }, linkCell(a)), h("td", null, doing(a)),
      h("td", { class: `n${a.queue ? "" : " dim"}` }, a.queue ? h("a", { href: `/ui?agent=${encodeURIComponent(a.name)}&role=target&status=queued` }, number(a.queue)) : number(0)),
      h("td", { class: "n" }, list(a, number(a.counts.asks), "target")), h("td", { class: "n" }, list(a, number(a.asks_out), "asker")),
      h("td", { class: `n${low(a) ? " badn" : ""}` }, answered === null ? say.unknown : list(a, percent(answered), "target", "&status=answered")),
      h("td", { class: "n" }, a.counts.median === null ? say.unknown : list(a, about(a.counts.median), "target", "&status=answered")),
      h("td", { class: `err${STATUS[a.last_error?.status]?.tone === "ref" ? " ref" : ""}` }, errorCell(a)),
    ];
  }

  function card(a) {
    const how = presence(a), row = works(a), mark = row && isOpen(row) && badge(row, now());
    mark?.append?.(` ${timer(now() - row.started_at)}`);
    const state = how !== "online" ? h("span", { class: `st s-${how === "offline" ? "off" : "warn"}` }, icon(how === "offline" ? "away" : "cut"), W.presence[how]) : mark || h("span", { class: "dim" }, a.pending ? say.unknown : W.idle);
    const error = a.last_error && now() - a.last_error.at < 3600000 && h("p", { class: "v" }, W.error(STATUS[a.last_error.status]?.label ?? a.last_error.status, hm(a.last_error.at), named(a.last_error.from)));
    return h("a", { href: `/ui/agents?a=${encodeURIComponent(a.name)}`, "aria-expanded": String(view.open === a.name), on: { click: (event) => { if (event.ctrlKey || event.metaKey) return; event.preventDefault(); toggle(a.name); } } }, square(a.name, a, "l"), h("div", null,
      h("p", { class: "t" }, h("b", null, bdi(short(a.name))), state),
      h("p", { class: "u num" }, h("span", null, W.counts(number(a.counts.asks), number(a.asks_out))), h("span", { class: low(a) ? "badn" : "" }, a.counts.answered === null ? "" : W.answered(percent(a.counts.answered))), h("span", null, a.counts.median === null ? "" : about(a.counts.median))),
      a.queue ? h("p", { class: "u" }, W.waiting(a.queue), timer(now() - a.oldest)) : "", error || ""));
  }

  /** What an agent shows when it is unfolded, or why it does not yet. */
  function unfolded(a) {
    if (detail?.name !== a.name) return h("p", { class: "dim" }, say.wait);
    return detail.failed ? h("p", null, say.trouble.load, " ", h("button", { class: "link", on: { click: () => learn(a.name) } }, say.trouble.again)) : more(a, detail);
  }

  function more(a, found) {
    const list_ = (items) => items.flatMap((item, i) => [i ? W.list : "", item]);
    const pair = (name, ...value) => [h("dt", null, name), h("dd", null, value)];
    return h("div", { class: "facets" },
      h("dl", { class: "kv" },
        a.description ? pair(W.description, bdi(a.description)) : [], a.skills ? pair(W.skills, a.skills.join(W.list)) : [],
        pair(W.mayAsk, found.may_ask === null ? W.everybody : found.may_ask.length ? list_(found.may_ask.map((name) => linked(name, store.agents.get(name)))) : W.nobody),
        pair(W.rate, found.rate_per_minute ? W.perMinute(number(found.rate_per_minute)) : W.noLimit), pair(W.pending, W.upTo(number(found.max_pending))),
        pair(W.held, W.upTo(took(found.hold_ms))), a.client ? pair(W.client, h("span", { class: "mono" }, a.client)) : [], a.protocol ? pair(W.protocol, String(a.protocol)) : [],
        h("dt", null), h("dd", null, h("a", { class: "more", href: `/ui?agent=${encodeURIComponent(a.name)}` }, W.exchanges), h("a", { class: "more", href: `/ui/map?a=${encodeURIComponent(a.name)}` }, W.onMap))),
      h("div", null, h("h3", null, W.errors), found.errors.length ? h("ul", { class: "errors" }, found.errors.map((row) => h("li", null, h("a", { href: exchangeLink(row) }, h("time", { datetime: iso(row.started_at), title: title(row.started_at) }, when(row.started_at)), badge(row, now()), h("span", null, W.askedBy(named(row.from))), h("span", { class: "cut", dir: "auto" }, says((row.error ?? row.message).slice(0, 200))))))) : h("p", { class: "dim" }, W.noErrors)),
      h("div", null, h("h3", null, W.links), found.links.length ? h("ul", { class: "errors" }, found.links.map((link) => h("li", null, h("span", { class: "num" }, stamp(link.since).replace(/\.\d+$/, "")), h("span", null, link.until ? W.lasted(age(link.until - link.since), link.superseded) : W.lasts), h("span", { class: "cut mono" }, link.client || W.byProtocol(link.protocol))))) : h("p", { class: "dim" }, W.noErrors)));
  }

  function tick(at) {
    for (const [name, [pulse, time]] of pulses) {
      const row = works(lines.get(name).agent);
      if (!row || !isOpen(row)) { pulses.delete(name); due = Math.min(due, Date.now() + 300); continue; }
      time.textContent = timer(at - row.started_at);
      drawOpen(pulse, row, at, { ticks: false });
      if (narrow.matches) renew(lines.get(name).card, card(lines.get(name).agent), view.open === name && unfolded(lines.get(name).agent));
    }
    if (Date.now() > due && !document.hidden) load();
  }

  /** Goes so many agents on. */
  function move(step) {
    const all = [...el.querySelectorAll(narrow.matches ? ".bots > li > a" : "tbody .who[data-agent]")], here = all.indexOf(document.activeElement);
    const to = all[Math.max(0, Math.min(all.length - 1, here < 0 ? 0 : here + step))];
    to?.focus({ preventScroll: true });
    to?.scrollIntoView({ block: "nearest" });
  }

  const stop = [on("agents", () => {
    for (const row of rows) Object.assign(row, store.agents.get(row.name));
    due = Math.min(due, Date.now() + 500);
    refresh();
  }), on("rows", () => { due = Math.min(due, Date.now() + 2000); }), on("state", () => { if (!rows.length) refresh(); })];
  narrow.addEventListener("change", draw);
  draw();
  load();
  return { el, title: say.views.agents, tab: "agents", first: find, tick, move, shown: () => { if (!revealed && rows.length) reveal(); }, close() { closed = true; narrow.removeEventListener("change", draw); for (const end of stop) end(); } };
}
