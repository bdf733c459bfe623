// What the feed shows: read from the address, written to it, asked of the relay, matched here.

import { h, icon } from "./dom.js";
import { GROUPS, STATUS, status } from "./status.js";
import { store } from "./store.js";
import { midnight, zoneName } from "./time.js";
import { named, spokenPresence, square } from "./who.js";
import { say } from "./words.js";

const W = say.filter;
const UNITS = { m: 60000, h: 3600000, d: 86400000 };
const RELATIVE = /^-(\d{1,5})([mhd])$/;
const list = (text) => (text ? text.split(",").filter(Boolean) : []);

/** An end of a time range in unix ms: `-7d` from now, `2026-03-17` at midnight here, or `today`. */
export function instant(text, at, dayEnd = false) {
  if (!text) return null;
  const relative = RELATIVE.exec(text);
  if (relative) return at - Number(relative[1]) * UNITS[relative[2]];
  if (text === "today") return midnight(at);
  if (text === "yesterday") return midnight(at, dayEnd ? 0 : -1);
  const date = /^(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2}))?$/.exec(text);
  if (!date) return null;
  const [y, m, d, hour, minute] = date.slice(1).map((part) => Number(part ?? 0));
  if (date[4] !== undefined) return new Date(y, m - 1, d, hour, minute).getTime();
  return new Date(y, m - 1, d + (dayEnd ? 1 : 0)).getTime();
}

export class Filter {
  constructor(query = new URLSearchParams()) { this.read(query); }

  read(query) {
    this.q = (query.get("q") ?? "").slice(0, 200);
    this.agents = list(query.get("agent"));
    this.with = query.get("with") ?? "";
    this.role = ["asker", "target"].includes(query.get("role")) ? query.get("role") : "any";
    this.statuses = list(query.get("status"));
    this.from = query.get("from") ?? "";
    this.to = query.get("to") ?? "";
  }

  get words() { return this.q.toLowerCase().split(/\s+/u).filter(Boolean); }
  get empty() { return !this.q && !this.agents.length && !this.statuses.length && !this.from && !this.to; }

  /** Takes every filter away; the words of a search stay. */
  clear() { Object.assign(this, { agents: [], with: "", role: "any", statuses: [], from: "", to: "" }); }

  /** As it stands in the address: relative ranges stay relative. */
  get query() {
    const query = new URLSearchParams();
    if (this.q) query.set("q", this.q);
    if (this.agents.length) query.set("agent", this.agents.join(","));
    if (this.with) query.set("with", this.with);
    if (this.agents.length && this.role !== "any") query.set("role", this.role);
    if (this.statuses.length) query.set("status", this.statuses.join(","));
    if (this.from) query.set("from", this.from);
    if (this.to) query.set("to", this.to);
    return query;
  }

  get codes() {
    return new Set(this.statuses.flatMap((code) => (GROUPS.some(([group]) => group === code) ? Object.keys(STATUS).filter((key) => STATUS[key].group === code) : [code])));
  }

  range(at) { return [instant(this.from, at), instant(this.to, at, true)]; }

  matches(row, at) {
    const [from, to] = this.range(at);
    if ((from !== null && row.started_at < from) || (to !== null && row.started_at >= to)) return false;
    if (this.statuses.length && !this.codes.has(row.status) && !this.statuses.includes(status(row).group)) return false;
    if (this.agents.length) {
      const asker = this.agents.includes(row.from), target = this.agents.includes(row.to);
      if (!(this.role === "asker" ? asker : this.role === "target" ? target : asker || target)) return false;
    }
    if (this.with && row.from !== this.with && row.to !== this.with) return false;
    if (!this.q) return true;
    const text = [row.message, row.answer, row.late_answer, row.error, row.from, row.to].join("\n").toLowerCase();
    return this.words.every((word) => text.includes(word));
  }
}

const RANGES = [["", "", W.always], ["-1h", "", W.last(1, W.units.h)], ["today", "", say.day.today], ["yesterday", "yesterday", say.day.yesterday], ["-7d", "", W.last(7, W.units.d)]];

export function rangeName(filter) {
  const known = RANGES.find(([from, to]) => from === filter.from && to === filter.to);
  if (known) return known[2];
  const last = RELATIVE.exec(filter.from);
  if (last && !filter.to) return W.last(Number(last[1]), W.units[last[2]]);
  if (filter.from && filter.from === filter.to) return filter.from;
  return W.range(filter.from.replace("T", " "), filter.to.replace("T", " "));
}

/** A button that opens a popover of its own, placed under it; `draw` gives the content anew each time. */
function pick(key, draw) {
  const name = W[key];
  const panel = h("div", { class: "menu", popover: "auto", id: `menu-${key}`, role: "dialog", "aria-label": name });
  const value = h("b");
  const button = h("button", { class: "pick", popovertarget: panel.id, "aria-haspopup": "dialog" }, name, " ", value, icon("down"));
  const clear = h("button", { class: "icon cross", hidden: true, "aria-label": W.clear(name) }, icon("x"));
  panel.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    panel.replaceChildren(...draw());
    const box = button.getBoundingClientRect();
    panel.style.top = `${box.bottom + 4}px`;
    panel.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 288))}px`;
  });
  panel.addEventListener("toggle", (event) => { if (event.newState === "open") panel.querySelector("input:checked, input, button")?.focus(); });
  return { el: h("span", { class: "picker" }, button, clear, panel), button, clear, panel, set(text, active) {
    value.textContent = text;
    button.classList.toggle("on", active);
    clear.hidden = !active;
  } };
}

const item = (type, name, checked, change, ...label) =>
  h("label", { class: "choice" }, h("input", { type, name, checked, on: { change } }), h("span", null, ...label));

/** The bar over the feed; calls `changed` after each choice. */
export function filterBar(filter, changed) {
  const toggle = (values, value) => (values.includes(value) ? values.filter((v) => v !== value) : [...values, value]);

  const agent = pick("agent", () => {
    const names = [...new Set([...filter.agents, ...store.agents.keys()])].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const options = names.map((name) => item("checkbox", "agent", filter.agents.includes(name), () => { filter.agents = toggle(filter.agents, name); changed(); }, square(name, store.agents.get(name), "s"), named(name), spokenPresence(name, store.agents.get(name))));
    const find = h("input", { class: "field", type: "search", placeholder: W.find, "aria-label": W.find, on: { input: () => options.forEach((el, i) => { el.hidden = !names[i].toLowerCase().includes(find.value.toLowerCase()); }) } });
    const roles = h("div", { class: "seg", role: "group", "aria-label": W.role }, Object.entries(W.roles).map(([role, label]) => h("button", { "aria-pressed": String(filter.role === role), on: { click: (event) => {
      filter.role = role;
      for (const el of event.currentTarget.parentElement.children) el.setAttribute("aria-pressed", String(el === event.currentTarget));
      changed();
    } } }, label)));
    return [roles, names.length > 12 ? find : "", h("div", { class: "choices" }, options)];
  });

  const state = pick("status", () => [h("div", { class: "choices" }, GROUPS.map(([group, label]) => [
    item("checkbox", "status", filter.statuses.includes(group), () => { filter.statuses = toggle(filter.statuses, group); changed(); }, h("b", null, label)),
    Object.entries(STATUS).filter(([code, known]) => known.group === group && code !== "pending").length > 1 && Object.entries(STATUS).filter(([code, known]) => known.group === group && code !== "pending").map(([code, known]) =>
      h("div", { class: "inner" }, item("checkbox", "status", filter.statuses.includes(code), () => { filter.statuses = toggle(filter.statuses, code); changed(); }, icon(known.shape, `i s-${known.tone} tone`), known.label))),
  ]))]);

  const time = pick("time", () => {
    const set = (from, to) => { filter.from = from; filter.to = to; changed(); };
    const date = (label, value, change) => h("label", { class: "date" }, h("span", null, label), h("input", { class: "field", type: "date", value: /^\d{4}-\d\d-\d\d$/.test(value) ? value : "", on: { change: (event) => change(event.target.value) } }));
    return [h("div", { class: "choices" }, RANGES.map(([from, to, label]) => item("radio", "range", filter.from === from && filter.to === to, () => set(from, to), label))),
      date(W.aDay, filter.from === filter.to ? filter.from : "", (value) => set(value, value)),
      h("div", { class: "dates" }, date(W.from, filter.from, (value) => set(value, filter.to)), date(W.to, filter.to, (value) => set(filter.from, value))),
      h("p", { class: "zone" }, zoneName)];
  });

  agent.clear.addEventListener("click", () => { filter.agents = []; filter.with = ""; filter.role = "any"; changed(); agent.button.focus(); });
  state.clear.addEventListener("click", () => { filter.statuses = []; changed(); state.button.focus(); });
  time.clear.addEventListener("click", () => { filter.from = filter.to = ""; changed(); time.button.focus(); });

  const total = h("span", { class: "total num wide" });
  const clear = h("button", { class: "link", hidden: true, on: { click: () => { filter.clear(); changed(); agent.button.focus(); } } }, say.feed.clear);
  const el = h("div", { class: "filters", role: "group", "aria-label": say.feed.filters }, agent.el, state.el, time.el, clear, total);
  const update = () => {
    const [first, ...others] = filter.agents;
    const role = { asker: W.asks, target: W.isAsked }[filter.role] ?? "";
    agent.set(first ? `${first}${others.length ? W.others(others.length) : ""}${filter.with ? W.and(filter.with) : role}` : W.any, Boolean(first));
    const [one, ...more] = filter.statuses;
    const label = GROUPS.find(([group]) => group === one)?.[1] ?? STATUS[one]?.label ?? one;
    state.set(one ? `${label}${more.length ? W.others(more.length) : ""}` : W.any, Boolean(one));
    time.set(rangeName(filter), Boolean(filter.from || filter.to));
    clear.hidden = [first, one, filter.from || filter.to].filter(Boolean).length < 2;
  };
  update();
  return { el, update, total, first: agent.button };
}
