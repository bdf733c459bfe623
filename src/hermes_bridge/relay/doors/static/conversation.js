// The view Conversation: a thread of exchanges, its outline, and the details of the one in view.

import { bdi, h, icon } from "./dom.js";
import { dots } from "./exchanges.js";
import { drawDone, drawOpen, newPulse } from "./pulse.js";
import { copy, countdown, exchangeLink, longText, traceLink } from "./row.js";
import { badge, isOpen, isRefused, reason, status } from "./status.js";
import { ask, CUT, on, store, take } from "./store.js";
import { about, age, day, dayKey, hms, iso, now, size, span, stamp, timer, title, took, when } from "./time.js";
import { square, who } from "./who.js";

const PAUSE = 300000;
const plus = (row, t) => `+${took(Math.max(0, t - row.started_at))}`;
const fact = (strong, ...text) => h("span", null, h("b", null, strong), " ", text);

export function conversation(id, app) {
  const turns = new Map();
  const thread = h("section", { class: "panel thread" });
  const heading = h("h1", { class: "route" }), meta = h("p", { class: "meta num" });
  const outline = h("ol", { class: "toc" }), turnCount = h("span", { class: "count push" });
  const details = h("dl", { class: "kv" });
  const older = h("p", { class: "tail-row", hidden: true }, h("button", { class: "btn", on: { click: () => loadOlder() } }, "Load older"));
  const pill = h("button", { class: "below", hidden: true, on: { click: () => { pill.hidden = true; unseen = 0; thread.lastElementChild?.scrollIntoView({ block: "end" }); } } });
  const link = h("button", { class: "btn push wide", on: { click: (event) => copy(location.href, event.currentTarget, "Link copied") } }, icon("copy"), h("span", null, "Copy link"));
  const head = h("div", { class: "head" }, heading, meta, link);
  const rail = h("aside", { class: "rail", "aria-label": "Outline and details" },
    h("section", { class: "panel", "aria-label": "Exchanges of this conversation" }, h("header", null, h("h2", null, "Exchanges"), turnCount), outline),
    h("section", { class: "panel", "aria-label": "Details" }, h("header", null, h("h2", null, "Details")), details));
  const cols = h("div", { class: "cols tail" }, h("div", null, older, thread), rail);
  const el = h("div", { class: "page" }, h("a", { class: "back", href: "/ui" }, icon("back"), "Exchanges"), head, cols, pill);
  let first = "", inView = null, unseen = 0, loaded = false, counted = 0, before = "";

  async function load() {
    try {
      const found = await ask(`/ui/api/conversations/${encodeURIComponent(id)}?cut=${CUT}`);
      take(found.exchanges);
      counted = found.turns;
      if (!found.exchanges.length) { missing(); return; }
      loaded = true;
      if (!turns.size || !found.more) rest(found);
      for (const row of found.exchanges) show(store.rows.get(row.request_id));
      describe();
      marked();
    } catch {
      thread.replaceChildren(h("div", { class: "none" }, h("p", null, "Could not load this. ", h("button", { class: "link", on: { click: load } }, "Try again"))));
    }
  }

  /** What is said about exchanges that are not here yet. */
  function rest(found) {
    before = found.more ? found.next : "";
    older.hidden = !before;
  }

  /** Puts older exchanges above; what is read stays where it is. */
  async function loadOlder() {
    const button = older.firstChild;
    button.disabled = true;
    const found = await ask(`/ui/api/conversations/${encodeURIComponent(id)}?cut=${CUT}&before=${encodeURIComponent(before)}`).catch(() => null);
    button.disabled = false;
    if (!found) { button.textContent = "Could not load this. Try again"; return; }
    button.textContent = "Load older";
    take(found.exchanges);
    const rows = [...found.exchanges.map((row) => store.rows.get(row.request_id)), ...[...turns.values()].map((turn) => turn.row)];
    const anchor = [...turns.values()].find((turn) => turn.el.getBoundingClientRect().bottom > 60), kept = anchor?.row.request_id;
    const top = anchor?.el.getBoundingClientRect().top;
    watch.disconnect();
    seen.clear();
    turns.clear();
    first = "";
    thread.replaceChildren();
    outline.replaceChildren();
    rest(found);
    for (const row of rows) show(row);
    describe();
    if (kept) scrollBy({ top: turns.get(kept).el.getBoundingClientRect().top - top });
    focus(turns.get(inView?.row.request_id));
  }

  function missing() {
    head.hidden = rail.hidden = true;
    thread.replaceChildren(h("div", { class: "none" }, dots(), h("h2", null, "No such conversation"), h("p", { class: "sub" }, "It may be older than the relay keeps.")));
  }

  function show(row) {
    let turn = turns.get(row.request_id);
    if (turn) { turn.update(row); return; }
    first ||= row.from;
    const before = [...turns.values()].at(-1);
    turn = new Turn(row, first, app);
    if (!before || dayKey(before.row.started_at) !== dayKey(row.started_at)) {
      const [name, date] = day(row.started_at);
      thread.append(h("h2", { class: "day" }, name, date && h("span", null, date)));
    } else {
      const gap = row.started_at - (before.row.late_at || before.row.ended_at || before.row.started_at);
      if (gap > PAUSE) thread.append(h("p", { class: "pause" }, `${age(gap)} later`));
    }
    turns.set(row.request_id, turn);
    thread.append(turn.el);
    watch.observe(turn.el);
    const number = turns.size;
    const known = h("span", { class: "r" });
    const item = h("li", null, h("a", { href: `#r=${encodeURIComponent(row.request_id)}`, on: { click: (event) => { event.preventDefault(); history.replaceState(history.state, "", event.currentTarget.href); marked(); } } }, h("span", { class: "n" }, String(number)), h("p", { dir: "auto" }, row.message.slice(0, 120)), known));
    turn.outline = { item, known };
    outline.append(item);
    turn.mark();
  }

  function describe() {
    const rows = [...turns.values()].map((turn) => turn.row);
    const [one] = rows;
    const other = one.to;
    heading.replaceChildren(who(one.from, store.agents.get(one.from), { size: "l" }), icon("both"), h("span", { class: "sr" }, "and"), who(other, store.agents.get(other), { size: "l" }));
    thread.setAttribute("aria-label", `Conversation between ${one.from} and ${other}`);
    meta.textContent = `${before ? "the last " : ""}${rows.length} exchange${rows.length === 1 ? "" : "s"} since ${when(one.started_at)}`;
    turnCount.textContent = store.limits.max_turns ? `turn ${counted} of ${store.limits.max_turns} this hour` : "";
  }

  /** Scrolls to the exchange that the address names. */
  function marked() {
    const rid = decodeURIComponent(location.hash.replace(/^#r=/, ""));
    const turn = turns.get(rid) ?? null;
    for (const one of turns.values()) one.el.classList.toggle("marked", one === turn && turns.size > 1);
    if (turn) { turn.el.scrollIntoView({ block: turns.size > 1 ? "start" : "nearest" }); pinned = Date.now(); focus(turn); } else focus([...turns.values()][0]);
  }
  let pinned = 0;

  function focus(turn) {
    if (!turn) return;
    inView = turn;
    for (const one of turns.values()) one === turn ? one.outline.item.setAttribute("aria-current", "true") : one.outline.item.removeAttribute("aria-current");
    details.replaceChildren(...detail(turn.row));
  }

  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
    if (Date.now() - pinned < 1000) return;
    const top = [...turns.values()].find((turn) => seen.has(turn.el));
    if (top && top !== inView) focus(top);
  }, { rootMargin: "-64px 0px -40% 0px" });

  const stop = [on("rows", (rids) => {
    if (!loaded) return;
    let fresh = 0;
    for (const rid of rids) {
      const row = store.rows.get(rid);
      if (row.conversation_id !== id) continue;
      if (!turns.has(rid)) { fresh += 1; if (!isRefused(row)) counted += 1; }
      const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
      show(row);
      if (inView?.row.request_id === rid) focus(turns.get(rid));
      if (fresh && !atEnd) unseen += 1; else if (fresh) thread.lastElementChild.scrollIntoView({ block: "end" });
    }
    if (!fresh) return;
    describe();
    pill.hidden = !unseen;
    pill.replaceChildren(icon("down"), `${unseen} new below`);
  }), on("state", () => { if (loaded) describe(); }), on("gap", load), on("keep", (kept) => { for (const rid of turns.keys()) kept.add(rid); })];
  const reach = () => { if (innerHeight + scrollY >= document.body.scrollHeight - 80) { pill.hidden = true; unseen = 0; } };
  addEventListener("scroll", reach, { passive: true });
  load();
  return {
    el, title: "Conversation", shown() { if (loaded) marked(); },
    tick(at) { for (const turn of turns.values()) if (isOpen(turn.row)) turn.tick(at); },
    close() { watch.disconnect(); removeEventListener("scroll", reach); for (const end of stop) end(); },
  };
}

class Turn {
  constructor(row, first, app) {
    this.first = first;
    this.app = app;
    this.el = h("article", { class: "turn", id: `r-${row.request_id}`, tabindex: "-1" });
    this.update(row);
  }

  side(name) { return name === this.first ? "a" : "b"; }

  bubble(name, at, text, { late = null, foot = null } = {}) {
    const side = this.side(name);
    return h("div", { class: `msg ${side}${late ? " late" : ""}` }, square(name, null, "l"), h("div", null,
      h("p", { class: "by" }, bdi(name), h("time", { datetime: iso(at), title: title(at) }, hms(at)), late && h("span", { class: "st bare s-warn" }, late)),
      h("div", { class: `bubble${side === "b" ? " alt" : ""}${late ? " late" : ""}` }, text, foot)));
  }

  update(row) {
    const key = JSON.stringify({ ...row, beats: 0, beat_times: 0, heard_at: 0, deadline: 0, note: 0 });
    this.row = row;
    if (this.key !== key) { this.key = key; this.draw(row); }
    if (isOpen(row)) this.tick(now());
    this.mark();
  }

  draw(row) {
    const parts = [];
    if (row.depth > 0 && row.chain?.length) parts.push(h("p", { class: "nested" }, h("button", { class: "link", on: { click: (event) => this.parent(event.currentTarget) } }, "asked while answering ", bdi(row.chain.at(-1)))));
    parts.push(this.bubble(row.from, row.started_at, longText(row, "message", [])));
    this.pulse = this.facts = null;
    if (isOpen(row)) {
      this.pulse = newPulse();
      this.facts = h("p", { class: "facts mid" });
      this.left = h("span", { class: "push" });
      parts.push(h("div", { class: "beatline" }, this.pulse, this.facts));
    } else if (!isRefused(row) && row.ended_at > row.started_at) {
      const pulse = newPulse();
      drawDone(pulse, row);
      parts.push(h("div", { class: "beatline" }, pulse, h("p", { class: "facts" }, history_(row))));
    }
    if (row.status === "ok") parts.push(this.bubble(row.to, row.ended_at, longText(row, "answer", [])));
    else if (!isOpen(row)) {
      const known = status(row);
      parts.push(h("p", { class: `stop s-${known.tone}` }, icon(known.shape), h("b", null, `${known.label}.`), h("span", null, reason(row, store.limits, store.agents.get(row.to)), cameBack(row))));
    }
    if ((isOpen(row) || row.status === "ok") && row.resent?.length) parts.push(h("p", { class: "facts mid" }, cameBack(row)));
    if (row.late_at) {
      const fetched = row.fetched_at ? ["Fetched by ", bdi(row.from), ` at ${hms(row.fetched_at)}.`] : "Not fetched.";
      parts.push(this.bubble(row.to, row.late_at, longText(row, "late_answer", []), { late: `${about(row.late_at - row.ended_at)} late`, foot: h("p", { class: "dim" }, fetched) }));
    }
    this.el.replaceChildren(...parts);
  }

  /** Goes to the exchange that was being answered when this one was asked. */
  async parent(button) {
    const { row } = this, asker = row.chain.at(-1);
    const query = new URLSearchParams({ agent: row.from, role: "target", with: asker, until: row.started_at + 1, cut: 1, limit: 20 });
    const found = await ask(`/ui/api/exchanges?${query}`).catch(() => ({ exchanges: [] }));
    const parent = found.exchanges.find((one) => one.from === asker && one.request_id !== row.request_id && (!one.ended_at || one.ended_at >= row.started_at));
    if (parent) this.app.go(exchangeLink(parent));
    else button.replaceWith("asked while answering ", bdi(asker), ", which the relay no longer keeps");
  }

  tick(at) {
    const row = this.row;
    if (this.pulse) {
      drawOpen(this.pulse, row, at);
      const cancel = store.canCancel && (this.cancelButton ??= h("button", { class: "btn tiny", on: { click: () => this.app.cancel(this.row) } }, "Cancel ask"));
      const mark = badge(row, at);
      mark.append(` ${timer(at - row.started_at)}`);
      this.left.textContent = row.status === "queued" ? `Queued until ${row.to} is back` : countdown(row, at);
      const said = row.note ? h("b", null, bdi(row.note)) : "";
      if (!this.facts.contains(document.activeElement)) this.facts.replaceChildren(mark, said, this.left, cancel || "");
    }
    this.mark(at);
  }

  /** The line of the outline. */
  mark(at = now()) {
    if (!this.outline) return;
    const row = this.row, known = status(row);
    const text = isOpen(row) ? timer(at - row.started_at) : isRefused(row) || row.ended_at === row.started_at ? "–" : took(row.ended_at - row.started_at);
    const key = row.status + text;
    if (this.marking === key) return;
    this.marking = key;
    this.outline.known.className = `r s-${known.tone}`;
    this.outline.known.replaceChildren(icon(known.shape), h("span", { class: "sr" }, known.label), text);
  }
}

/** What happened to the link of the asked agent meanwhile. */
function cameBack(row) {
  const times = row.resent?.length ?? 0;
  return times ? ` The link was lost ${times === 1 ? "once" : `${times} times`} and came back.` : "";
}

function history_(row) {
  const lost = row.resent ?? [];
  return [
    row.taken_at && fact("taken", plus(row, row.taken_at)),
    row.beats > 0 && fact(String(row.beats), row.beats === 1 ? "heartbeat" : "heartbeats"),
    ...lost.map((t, i) => fact("sent again", `${plus(row, t)}, attempt ${(row.attempt ?? 1) - lost.length + i + 1}`)),
    h("span", { class: row.late_at ? "" : "push" }, h("b", null, row.status === "ok" ? "answered" : status(row).label.toLowerCase()), ` ${plus(row, row.ended_at)}`),
    row.late_at && h("span", { class: "push" }, h("b", null, "late answer"), ` ${plus(row, row.late_at)}`),
  ].filter(Boolean);
}

/** The longest time without a sign of life, in ms. */
function longestSilence(row) {
  const start = row.sent_at || row.started_at;
  const signs = [start, row.taken_at, ...(row.beat_times ?? []), ...(row.resent ?? []), row.ended_at || now()].filter(Boolean).sort((a, b) => a - b);
  return Math.max(...signs.slice(1).map((t, i) => t - signs[i]), 0);
}

function detail(row) {
  const bytes = (field) => row.sizes?.[field] ?? new TextEncoder().encode(row[field] ?? "").length;
  const line = (name, ...value) => value.some((part) => part || part === 0) ? [h("dt", null, name), h("dd", null, value.filter(Boolean))] : [];
  const code = (text) => h("span", { class: "mono", title: text }, text);
  const trace = row.trace ? row.trace.split("-")[1] ?? row.trace : "";
  const data = (field, name) => row[field] ? [h("dt", null, name), h("dd", null, h("details", null, h("summary", null, size(bytes(field))), h("pre", null, pretty(row[field]))))] : [];
  return [
    ...line("Conversation", code(row.conversation_id)), ...line("Exchange", code(row.request_id)),
    ...(trace ? line("Trace", traceLink(row, code(trace)) ?? code(trace)) : []),
    ...line("Asked", stamp(row.started_at)),
    ...(row.taken_at ? line("Taken", `${plus(row, row.taken_at)}, attempt ${row.attempt ?? 1}`) : row.attempt ? line("Sent", `${plus(row, row.sent_at || row.started_at)}, attempt ${row.attempt}`) : []),
    ...(row.ended_at ? line(status(row).label, plus(row, row.ended_at)) : []),
    ...(row.late_at ? line("Late answer", plus(row, row.late_at)) : []),
    ...(row.attempt ? line("Longest silence", `${took(longestSilence(row))} of ${span(row.window_ms ?? 120000)}`) : []),
    ...line("Sizes", `${size(bytes("message"))} asked${row.answer || row.late_answer ? `, ${size(bytes(row.answer ? "answer" : "late_answer"))} answered` : ""}`),
    ...data("data", "Data"), ...data("answer_data", "Answer data"),
  ].flat();
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
