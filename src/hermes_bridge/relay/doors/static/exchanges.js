// The view Exchanges: presence strip, filters, feed.

import { h, svg } from "./dom.js";
import { Feed } from "./feed.js";
import { Filter, filterBar, rangeName } from "./filters.js";
import { on, store } from "./store.js";
import { now } from "./time.js";
import { presence, short, square, WORDS } from "./who.js";

const unfolded = new Set();

export function exchanges(query, app) {
  const filter = new Filter(query);
  const feed = new Feed({ filter, unfolded, announce: app.announce });
  const strip = presenceStrip(filter, () => applied());
  const bar = filterBar(filter, () => applied());
  const nothing = h("div", { hidden: true });
  const tail = h("p", { class: "tail-row", hidden: true });
  feed.el.prepend(bar.el);
  feed.el.append(nothing, tail);
  const el = h("div", { class: "page" }, strip.el, h("section", { class: "panel", "aria-label": "Exchanges" }, feed.el));

  function applied() {
    filter.q = app.searched();
    app.replace("/ui", filter.query);
    strip.update();
    bar.update();
    load();
  }

  function load() {
    if (!store.ready) return;
    const at = now();
    const rows = [...store.rows.values()].filter((row) => filter.matches(row, at));
    feed.show(rows);
    counted();
  }

  function counted() {
    const n = feed.rows.size + feed.waiting.size;
    bar.total.textContent = n === 1 ? "1 exchange" : `${n.toLocaleString("en")} exchanges`;
    nothing.hidden = n > 0 || !store.ready;
    if (!n) nothing.replaceChildren(emptyState(filter, (all) => { if (all) app.clearSearch(); applied(); }));
  }

  load();
  const stop = [on("state", () => { if (feed.list.getAttribute("aria-busy") === "true") load(); else counted(); }), on("agents", strip.update), on("rows", counted)];
  return {
    el, title: "Exchanges", filter, feed,
    search: applied,
    tick: (at) => feed.tick(at),
    close() { feed.close(); for (const end of stop) end(); },
  };
}

function presenceStrip(filter, changed) {
  const count = h("p", null), chips = h("div", { class: "chips", role: "group", "aria-label": "Agents" });
  const known = new Map();
  const update = () => {
    const all = [...store.agents.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    count.replaceChildren(h("b", { class: "num" }, String(all.filter((a) => a.online).length)), ` of ${all.length} online`);
    for (const name of known.keys()) if (!store.agents.has(name)) { known.get(name).remove(); known.delete(name); }
    all.forEach((agent, place) => {
      let chip = known.get(agent.name);
      if (!chip) {
        chip = h("button", { class: "chip", title: agent.name, on: { click: () => {
          filter.agents = filter.agents.length === 1 && filter.agents[0] === agent.name ? [] : [agent.name];
          filter.with = "";
          changed();
        } } }, square(agent.name, agent, "s"), h("bdi", null, short(agent.name)), h("span", { class: "sr" }));
        known.set(agent.name, chip);
      }
      const how = presence(agent);
      chip.classList.toggle("offline", how === "offline");
      chip.querySelector(".av > i").className = how;
      chip.lastElementChild.textContent = ` (${WORDS[how]})`;
      chip.setAttribute("aria-pressed", String(filter.agents.includes(agent.name)));
      if (chips.children[place] !== chip) chips.insertBefore(chip, chips.children[place] ?? null);
    });
  };
  update();
  return { el: h("section", { class: "strip", "aria-label": "Agents" }, count, chips), update };
}

function emptyState(filter, changed) {
  const picture = svg("svg", { class: "big", viewBox: "0 0 120 32", fill: "none", "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 16, r: 6, fill: "var(--control)" }),
    svg("path", { d: "M24 16h72", stroke: "var(--control)", "stroke-width": 2, "stroke-linecap": "round", "stroke-dasharray": ".1 6" }),
    svg("circle", { cx: 110, cy: 16, r: 5, stroke: "var(--control)", "stroke-width": 2 }));
  if (filter.empty) {
    return h("div", { class: "none" }, picture, h("h2", null, "No exchanges yet"),
      h("p", { class: "sub" }, "Start one with: ", h("span", { class: "mono" }, "hermes-bridge ask NAME MESSAGE")));
  }
  const clear = (...names) => () => { for (const name of names) filter[name] = Array.isArray(filter[name]) ? [] : ""; filter.role = "any"; changed(names.includes("q")); };
  const between = filter.agents.length ? `Nothing with ${filter.agents.join(", ")}` : "Nothing";
  return h("div", { class: "none" }, picture, h("h2", null, "No exchange matches"),
    h("p", { class: "sub" }, `${between}${filter.q ? ` that holds “${filter.q}”` : ""}${filter.from || filter.to ? ` in: ${rangeName(filter).toLowerCase()}` : ""}.`),
    h("p", { class: "two" }, h("button", { class: "btn", on: { click: clear("q", "agents", "with", "statuses", "from", "to") } }, "Clear filters"),
      (filter.from || filter.to) && h("button", { class: "btn", on: { click: clear("from", "to") } }, "Search all time")));
}
