// The view Exchanges: presence strip, filters, feed, rail.

import { bdi, h, svg } from "./dom.js";
import { Feed } from "./feed.js";
import { Filter, filterBar, rangeName } from "./filters.js";
import { lastHour, openAsks } from "./rail.js";
import { ask, CUT, on, store, take } from "./store.js";
import { day, now } from "./time.js";
import { presence, short, square } from "./who.js";
import { say } from "./words.js";

const W = say.feed, MANY = 40;

export function exchanges(query, app) {
  const filter = new Filter(query), unfolded = new Set();
  const feed = new Feed({ filter, unfolded, cancel: app.cancel, announce: app.announce, restart: () => load(), cutTo: (row) => { cursor = `${row.started_at}-${row.request_id}`; tell(); } });
  const strip = presenceStrip(filter, () => applied());
  const bar = filterBar(filter, () => applied());
  const nothing = h("div", { hidden: true });
  const more = h("button", { class: "btn", on: { click: () => older() } }, W.older);
  const tail = h("div", { class: "tail-row", hidden: true });
  const edge = h("div");
  feed.el.prepend(bar.el);
  feed.el.append(nothing, edge, tail);
  const asks = openAsks(app);
  let total = null;
  const hour = lastHour((n) => { total = n; counted(); });
  const list = h("section", { class: "panel", "aria-label": W.name }, feed.el);
  const rail = h("aside", { class: "rail", "aria-label": say.rail.name }, asks.el, hour.el);
  const el = h("div", { class: store.ready ? "page" : "page waiting" }, strip.el, h("div", { class: "cols" }, list, rail));
  // The order of focus is the order on the screen.
  const narrow = matchMedia("(max-width: 1099px)");
  const settle = () => (narrow.matches ? list.before(rail) : list.after(rail));
  settle();
  narrow.addEventListener("change", settle);

  let anchor = null, cursor = "", loading = false, failed = false, question = 0, begun = false;

  function applied() {
    filter.q = app.searched();
    app.replace("/ui", filter.query);
    strip.update();
    bar.update();
    load();
  }

  /** Begins anew: what is known at once, then what the relay has. `state` was just read and holds the newest. */
  function load(state = null) {
    question += 1;
    begun = true;
    cursor = "";
    feed.complete = failed = loading = false;
    feed.clear();
    const at = now();
    feed.add([...store.rows.values()].filter((row) => filter.matches(row, at)).sort((a, b) => b.started_at - a.started_at).slice(0, 50));
    if (!state?.newest || !filter.empty || !state.exchanges.length) { older(); return; }
    feed.add(state.exchanges.map((row) => store.rows.get(row.request_id)));
    cursor = `${state.exchanges[0].started_at}-${state.exchanges[0].request_id}`;
    feed.complete = state.whole;
    feed.busy(false);
    look();
    tell();
  }

  async function older() {
    if (loading || feed.complete) return;
    loading = true;
    failed = false;
    feed.busy(true);
    tell();
    const asked = question;
    try {
      const wanted = filter.query, [since, until] = filter.range(now());
      for (const key of ["from", "to"]) wanted.delete(key);
      if (since !== null) wanted.set("since", since);
      if (until !== null) wanted.set("until", until);
      if (cursor) { wanted.set("before", cursor); wanted.set("limit", 200); }
      const page = await ask(`/ui/api/exchanges?cut=${CUT}&${wanted}`);
      if (asked !== question) return;
      take(page.exchanges);
      cursor = page.next ?? "";
      feed.complete = !page.next;
      loading = false;
      feed.add(page.exchanges.map((row) => store.rows.get(row.request_id)));
      look();
    } catch (error) {
      if (asked !== question) return;
      loading = false;
      failed = error.message;
    }
    feed.busy(loading);
    tell();
  }

  /** Asks whether the end is near, also when it was near before: an observer alone tells changes only. */
  function look() {
    watch.unobserve(edge);
    watch.observe(edge);
  }

  function tell() {
    counted();
    const oldest = feed.oldest;
    tail.hidden = !feed.size && !loading && !failed;
    if (failed) tail.replaceChildren(say.trouble.load, " ", h("button", { class: "link", on: { click: () => older() } }, say.trouble.again));
    else if (loading) tail.replaceChildren(feed.size || filter.empty ? W.loading : W.searching);
    else if (!feed.complete) tail.replaceChildren(more);
    else if (oldest) { const [name, date] = day(oldest.started_at); tail.replaceChildren(W.everything(date || name)); }
    nothing.hidden = feed.size > 0 || loading || Boolean(failed);
    if (!nothing.hidden) nothing.replaceChildren(emptyState(filter, (all) => { if (all) app.clearSearch(); applied(); }));
  }

  function counted() {
    const n = feed.size + feed.waiting.size;
    const known = feed.complete ? n : filter.empty ? total : null;
    bar.total.textContent = known === null ? (n ? W.some(n) : "") : W.total(known);
  }

  const watch = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting) && begun && !failed) older(); }, { rootMargin: "2000px" });
  watch.observe(edge);
  if (store.ready || !filter.empty) load();
  const stop = [
    on("state", (state) => { el.classList.remove("waiting"); if (failed) older(); else if (!feed.size && !loading) load(state); strip.update(); }),
    on("agents", strip.update),
    on("rows", () => { if (!nothing.hidden || !feed.size) tell(); else counted(); }),
  ];
  return {
    el, title: say.views.exchanges, tab: "exchanges", filter, feed, first: bar.first, 
    search: applied,
    sleep() {
      const first = [...feed.list.querySelectorAll(".ex")].find((row) => row.getBoundingClientRect().bottom > 60);
      anchor = first && scrollY > 0 ? [first, first.getBoundingClientRect().top] : null;
    },
    shown(again) {
      // Twice: rows that were not laid out yet get their heights after the first jump.
      if (again && anchor) for (let n = 0; n < 2; n += 1) scrollBy({ top: anchor[0].getBoundingClientRect().top - anchor[1] });
    },
    tick(at) { strip.tick(); feed.tick(at); asks.tick(); hour.tick(); },
    close() { narrow.removeEventListener("change", settle); watch.disconnect(); feed.close(); asks.close(); hour.close(); for (const end of stop) end(); },
  };
}

function presenceStrip(filter, changed) {
  const count = h("p", null), chips = h("div", { class: "chips", role: "group", "aria-label": say.strip.name });
  const known = new Map();
  let lately = [], due = 0;
  // Of many agents only those show that were active lately: asked of the relay once a minute.
  const learn = async () => {
    due = Date.now() + 60000;
    const found = await ask("/ui/api/counts?range=1h").catch(() => null);
    if (found) { lately = found.pairs; update(); }
  };
  const active = () => {
    if (Date.now() > due) learn();
    const since = now() - 3600000, names = new Set(lately.flatMap((pair) => [pair.from, pair.to]));
    for (const row of store.rows.values()) if (row.started_at > since) { names.add(row.from); names.add(row.to); }
    return names;
  };
  const update = () => {
    const all = [...store.agents.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    count.replaceChildren(h("b", { class: "num" }, String(all.filter((a) => a.online).length)), say.strip.online(all.length));
    const busy = all.length > MANY ? active() : null;
    const shown = busy ? all.filter((a) => !a.online || busy.has(a.name) || filter.agents.includes(a.name)) : all;
    const names = new Set(shown.map((a) => a.name));
    for (const name of [...known.keys()]) if (!names.has(name)) { known.get(name).remove(); known.delete(name); }
    shown.forEach((agent, place) => {
      let chip = known.get(agent.name);
      if (!chip) {
        chip = h("button", { class: "chip", title: agent.name, on: { click: () => {
          filter.agents = filter.agents.length === 1 && filter.agents[0] === agent.name ? [] : [agent.name];
          filter.with = "";
          changed();
        } } }, square(agent.name, agent, "s"), bdi(short(agent.name)), h("span", { class: "sr" }));
        known.set(agent.name, chip);
      }
      const how = presence(agent);
      chip.classList.toggle("offline", how === "offline");
      chip.querySelector(".av > i").className = how;
      chip.lastElementChild.textContent = say.spoken.presence(say.presence[how]);
      chip.setAttribute("aria-pressed", String(filter.agents.includes(agent.name)));
      if (chips.children[place] !== chip) chips.insertBefore(chip, chips.children[place] ?? null);
    });
  };
  update();
  return { el: h("section", { class: "strip", "aria-label": say.strip.name }, count, chips, h("a", { class: "more", href: "/ui/agents" }, say.strip.all)), update, tick() { if (store.agents.size > MANY && Date.now() > due) update(); } };
}

export const dots = () => svg("svg", { class: "big", viewBox: "0 0 120 32", fill: "none", "aria-hidden": "true" },
  svg("circle", { cx: 10, cy: 16, r: 6, fill: "var(--control)" }),
  svg("path", { d: "M24 16h72", stroke: "var(--control)", "stroke-width": 2, "stroke-linecap": "round", "stroke-dasharray": ".1 6" }),
  svg("circle", { cx: 110, cy: 16, r: 5, stroke: "var(--control)", "stroke-width": 2 }));

function emptyState(filter, changed) {
  if (filter.empty) {
    return h("div", { class: "none" }, dots(), h("h2", null, W.none),
      h("p", { class: "sub" }, W.start, h("span", { class: "mono" }, W.startWith)));
  }
  const clear = (...names) => () => { for (const name of names) filter[name] = Array.isArray(filter[name]) ? [] : ""; filter.role = "any"; changed(names.includes("q")); };
  const pair = filter.agents.length === 1 && filter.with ? W.between(filter.agents[0], filter.with) : filter.agents.length ? W.withAgents(filter.agents) : "";
  const range = filter.from || filter.to ? rangeName(filter) : "";
  return h("div", { class: "none" }, dots(), h("h2", null, W.noMatch),
    h("p", { class: "sub" }, W.nothing(pair, filter.q && W.holds(filter.q), range && W.within(range, filter.from))),
    h("p", { class: "two" }, h("button", { class: "btn", on: { click: clear("q", "agents", "with", "statuses", "from", "to") } }, W.clear),
      range && h("button", { class: "btn", on: { click: clear("from", "to") } }, W.always)));
}
