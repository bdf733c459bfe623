// The view Conversation: a thread of exchanges, its outline, and the details of the one in view.

import { arrange, bdi, cut, decoded, h, icon, keepFocus, renew, says, selected } from "./dom.js";
import { dots } from "./exchanges.js";
import { drawDone, drawOpen, newPulse } from "./pulse.js";
import { copy, countdown, exchangeLink, longText, traceLink } from "./row.js";
import { badge, isOpen, isRefused, reason, status } from "./status.js";
import { ask, CUT, on, store, take } from "./store.js";
import { about, age, day, dayKey, hms, inSeconds, iso, now, size, span, stamp, timer, title, took, when } from "./time.js";
import { linked, named, showPresence, square, who } from "./who.js";
import { say } from "./words.js";

const W = say.conversation, PAUSE = 300000;
const plus = (row, t) => `+${took(Math.max(0, t - row.started_at))}`;
const fact = (strong, ...text) => h("span", null, h("b", null, strong), " ", text);

export function conversation(id, app) {
  const turns = new Map();
  const thread = h("section", { class: "panel thread" });
  const heading = h("h1", { class: "route" }), meta = h("p", { class: "meta num" });
  const outline = h("ol", { class: "toc" }), turnCount = h("span", { class: "count push" });
  const details = h("dl", { class: "kv" });
  const older = h("p", { class: "tail-row", hidden: true }, h("button", { class: "btn", on: { click: () => loadOlder() } }, say.feed.older));
  const pill = h("button", { class: "below", hidden: true, on: { click: () => { pill.hidden = true; unseen = 0; thread.lastElementChild?.scrollIntoView({ block: "end" }); } } });
  const link = h("button", { class: "btn push wide", on: { click: (event) => copy(location.href, event.currentTarget, say.row.linkCopied) } }, icon("copy"), h("span", null, say.row.copyLink));
  const trace = h("span", { class: "wide" });
  const head = h("div", { class: "head" }, heading, meta, link, trace);
  const rail = h("aside", { class: "rail", "aria-label": W.rail },
    h("section", { class: "panel", "aria-label": W.outline }, h("header", null, h("h2", null, say.feed.name), turnCount), outline),
    h("section", { class: "panel", "aria-label": W.details }, h("header", null, h("h2", null, W.details)), details));
  const cols = h("div", { class: "cols tail" }, h("div", null, older, thread), rail);
  const el = h("div", { class: "page waiting" }, h("a", { class: "back", href: "/ui" }, icon("back"), say.views.exchanges), head, cols, pill);
  let nameless = !store.ready, first = "", inView = null, unseen = 0, loaded = false, counted = 0, before = "";

  async function load() {
    try {
      const found = await ask(`/ui/api/conversations/${encodeURIComponent(id)}?cut=${CUT}`);
      take(found.exchanges);
      counted = found.turns;
      if (!found.exchanges.length) { missing(); el.classList.remove("waiting"); return; }
      loaded = true;
      if (!turns.size || !found.more) rest(found);
      for (const row of found.exchanges) show(store.rows.get(row.request_id));
      describe();
      marked();
    } catch {
      thread.replaceChildren(h("div", { class: "none" }, h("p", null, say.trouble.load, " ", h("button", { class: "link", on: { click: load } }, say.trouble.again))));
    }
    el.classList.remove("waiting");
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
    if (!found) { button.textContent = say.trouble.loadAgain; return; }
    button.textContent = say.feed.older;
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
    thread.replaceChildren(h("div", { class: "none" }, dots(), h("h2", null, W.none), h("p", { class: "sub" }, W.old(store.limits.retention_days))));
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
      if (gap > PAUSE) thread.append(h("p", { class: "pause" }, W.pause(age(gap))));
    }
    turns.set(row.request_id, turn);
    thread.append(turn.el);
    watch.observe(turn.el);
    const number = turns.size;
    const known = h("span", { class: "r" });
    const item = h("li", null, h("a", { href: `#r=${encodeURIComponent(row.request_id)}`, on: { click: (event) => { event.preventDefault(); history.replaceState(history.state, "", event.currentTarget.href); marked(); } } }, h("span", { class: "n" }, String(number)), h("p", { dir: "auto" }, says(cut(row.message, 120) ?? row.message)), known));
    turn.outline = { item, known };
    outline.append(item);
    turn.mark();
  }

  function describe() {
    const rows = [...turns.values()].map((turn) => turn.row);
    const [one] = rows;
    const other = one.to;
    renew(heading, who(one.from, store.agents.get(one.from), { size: "l" }), icon("both"), h("span", { class: "sr" }, say.spoken.and), who(other, store.agents.get(other), { size: "l" }));
    thread.setAttribute("aria-label", W.between(one.from, other));
    meta.textContent = W.since(rows.length, when(one.started_at), before);
    turnCount.textContent = store.limits.max_turns ? W.turns(counted, store.limits.max_turns) : "";
  }

  /** Scrolls to the exchange that the address names. */
  function marked() {
    const rid = decoded(location.hash.replace(/^#r=/, ""));
    const turn = turns.get(rid) ?? null;
    for (const one of turns.values()) one.el.classList.toggle("marked", one === turn && turns.size > 1);
    if (turn) { turn.el.scrollIntoView({ block: turns.size > 1 ? "start" : "nearest" }); pinned = Date.now(); focus(turn); } else focus([...turns.values()][0]);
  }
  let pinned = 0;

  function focus(turn) {
    if (!turn) return;
    inView = turn;
    for (const one of turns.values()) one === turn ? one.outline.item.setAttribute("aria-current", "true") : one.outline.item.removeAttribute("aria-current");
    const { item } = turn.outline, low = item.offsetTop + item.offsetHeight - outline.offsetTop;
    if (low > outline.scrollTop + outline.clientHeight) outline.scrollTop = low - outline.clientHeight;
    else if (low - item.offsetHeight < outline.scrollTop) outline.scrollTop = low - item.offsetHeight;
    describeOne(turn.row);
    const leads = traceLink(turn.row, [icon("out"), W.trace]);
    if (leads) leads.className = "btn";
    renew(trace, leads);
  }

  /** The details of one exchange; what is unfolded or selected there stays so. */
  function describeOne(row) {
    const same = details.dataset.rid === row.request_id;
    if (same && selected(details)) return;
    const open = new Set(same ? [...details.querySelectorAll("details[open]")].map((one) => one.dataset.field) : []);
    renew(details, detail(row));
    details.dataset.rid = row.request_id;
    for (const one of details.querySelectorAll("details")) one.open = open.has(one.dataset.field);
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
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
    for (const rid of rids) {
      const row = store.rows.get(rid);
      if (row.conversation_id !== id) continue;
      if (!turns.has(rid)) { fresh += 1; if (!isRefused(row)) counted += 1; }
      show(row);
      if (inView?.row.request_id === rid) describeOne(row);
    }
    if (!fresh) return;
    if (atEnd) thread.lastElementChild.scrollIntoView({ block: "end" }); else unseen += fresh;
    describe();
    pill.hidden = !unseen;
    pill.replaceChildren(icon("down"), W.below(unseen));
  }), on("state", () => {
    if (head.hidden) missing();
    if (!loaded) return;
    describe();
    if (nameless) for (const turn of turns.values()) turn.again();
    nameless = false;
  }), on("agents", () => showPresence(heading, store.agents)), on("gap", load), on("keep", (kept) => { for (const rid of turns.keys()) kept.add(rid); })];
  const reach = () => { if (innerHeight + scrollY >= document.body.scrollHeight - 80) { pill.hidden = true; unseen = 0; } };
  addEventListener("scroll", reach, { passive: true });
  load();
  return {
    el, pill, title: say.views.conversation, under: "exchanges", inHand: () => inView?.row ?? null,
    /** Goes so many exchanges on. */
    move(step) {
      const all = [...turns.keys()], next = all[all.indexOf(inView?.row.request_id) + step];
      if (!next) return;
      history.replaceState(history.state, "", `#r=${encodeURIComponent(next)}`);
      marked();
      turns.get(next).el.focus({ preventScroll: true });
    },
    shown() { if (loaded) marked(); },
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

  /** Draws all of it anew. */
  again() {
    this.asked = null;
    this.draw(this.row);
    if (isOpen(this.row)) this.tick(now());
  }

  side(name) { return name === this.first ? "a" : "b"; }

  bubble(name, at, text, { late = null, foot = null } = {}) {
    const side = this.side(name);
    return h("div", { class: `msg ${side}${late ? " late" : ""}` }, square(name, null, "l"), h("div", null,
      h("p", { class: "by" }, linked(name, store.agents.get(name)), h("time", { datetime: iso(at), title: title(at) }, hms(at)), late && h("span", { class: "st bare s-warn" }, late)),
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
    // The question stays as it is: what somebody selects or opens in it outlives the answer's coming.
    this.asked ??= this.bubble(row.from, row.started_at, longText(row, "message", []));
    const parts = [];
    if (row.depth > 0 && row.chain?.length) parts.push(h("p", { class: "nested" }, h("button", { class: "link", on: { click: (event) => this.parent(event.currentTarget) } }, W.nested(named(row.chain.at(-1))))));
    parts.push(this.asked);
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
      parts.push(h("p", { class: `stop s-${known.tone}` }, icon(known.shape), h("b", null, W.stop(known.label)), h("span", null, reason(row, store.limits, store.agents.get(row.to)), cameBack(row))));
    }
    if ((isOpen(row) || row.status === "ok") && row.outages?.length) parts.push(h("p", { class: "facts mid" }, cameBack(row)));
    if (row.late_at) {
      const fetched = row.fetched_at ? say.row.fetched(named(row.from), hms(row.fetched_at)) : say.row.notFetched;
      parts.push(this.bubble(row.to, row.late_at, longText(row, "late_answer", []), { late: W.late(about(row.late_at - row.ended_at)), foot: h("p", { class: "dim" }, fetched) }));
    }
    keepFocus(this.el, () => arrange(this.el, parts));
  }

  /** Goes to the exchange that was being answered when this one was asked. */
  async parent(button) {
    const { row } = this, asker = row.chain.at(-1);
    const query = new URLSearchParams({ agent: row.from, role: "target", with: asker, until: row.started_at + 1, cut: 1, limit: 20 });
    const found = await ask(`/ui/api/exchanges?${query}`).catch(() => ({ exchanges: [] }));
    const parent = found.exchanges.find((one) => one.from === asker && one.request_id !== row.request_id && (!one.ended_at || one.ended_at >= row.started_at));
    if (parent) this.app.go(exchangeLink(parent));
    else button.replaceWith(...W.nested(named(asker)), W.forgotten);
  }

  tick(at) {
    const row = this.row;
    if (this.pulse) {
      drawOpen(this.pulse, row, at);
      const cancel = store.canCancel && (this.cancelButton ??= h("button", { class: "btn tiny", on: { click: () => this.app.cancel(this.row) } }, say.row.cancel));
      const mark = badge(row, at);
      mark.append(` ${timer(at - row.started_at)}`);
      this.left.textContent = row.status === "queued" ? say.pending.queued(row.to).join("") : countdown(row, at);
      const said = row.note ? h("b", null, bdi(row.note)) : "";
      if (!this.facts.contains(document.activeElement)) this.facts.replaceChildren(mark, said, this.left, cancel || "");
    }
    this.mark(at);
  }

  /** The line of the outline. */
  mark(at = now()) {
    if (!this.outline) return;
    const row = this.row, known = status(row);
    const text = isOpen(row) ? timer(at - row.started_at) : isRefused(row) || row.ended_at === row.started_at ? say.unknown : took(row.ended_at - row.started_at);
    const key = row.status + text;
    if (this.marking === key) return;
    this.marking = key;
    this.outline.known.className = `r s-${known.tone}`;
    this.outline.known.replaceChildren(icon(known.shape), h("span", { class: "sr" }, known.label), text);
  }
}

/** What happened to the link of the asked agent meanwhile. */
function cameBack(row) {
  const times = (row.outages ?? []).filter(([, back]) => back).map(([lost, back]) => back - lost);
  return times.length ? W.cameBack(times.length, inSeconds(Math.max(...times))) : "";
}

function history_(row) {
  const lost = row.resent ?? [];
  return [
    row.taken_at && fact(W.taken, plus(row, row.taken_at)),
    row.beats > 0 && fact(String(row.beats), say.row.heartbeats(row.beats)),
    ...lost.map((t, i) => fact(W.sentAgain, W.again(plus(row, t), (row.attempt ?? 1) - lost.length + i + 1))),
    h("span", { class: row.late_at ? "" : "push" }, h("b", null, row.status === "ok" ? W.answered : status(row).label.toLowerCase()), ` ${plus(row, row.ended_at)}`),
    row.late_at && h("span", { class: "push" }, h("b", null, W.lateAnswer), ` ${plus(row, row.late_at)}`),
  ].filter(Boolean);
}

/** The longest time without a sign of life, in ms. */
function longestSilence(row) {
  const start = row.sent_at || row.started_at;
  const signs = [start, row.taken_at, ...(row.beat_times ?? []), ...(row.outages ?? []).map(([, back]) => back), row.ended_at || now()].filter(Boolean).sort((a, b) => a - b);
  return Math.max(...signs.slice(1).map((t, i) => t - signs[i]), 0);
}

function detail(row) {
  const D = say.detail;
  const bytes = (field) => row.sizes?.[field] ?? new TextEncoder().encode(row[field] ?? "").length;
  const line = (name, ...value) => value.some((part) => part || part === 0) ? [h("dt", null, name), h("dd", null, value.filter(Boolean))] : [];
  const at = (t, text) => h("span", { title: stamp(t) }, text);
  const code = (text) => h("span", { class: "mono", title: text }, text);
  const trace = row.trace ? row.trace.split("-")[1] ?? row.trace : "";
  const data = (field, name) => row[field] ? [h("dt", null, name), h("dd", null, h("details", { data: { field } }, h("summary", null, size(bytes(field))), h("pre", null, pretty(row[field]))))] : [];
  return [
    ...line(D.conversation, code(row.conversation_id)), ...line(D.exchange, code(row.request_id)),
    ...(trace ? line(D.trace, traceLink(row, code(trace)) ?? code(trace)) : []),
    ...line(D.asked, stamp(row.started_at)),
    ...(row.taken_at ? line(D.taken, at(row.taken_at, W.again(plus(row, row.taken_at), row.attempt ?? 1))) : row.attempt ? line(D.sent, at(row.sent_at || row.started_at, W.again(plus(row, row.sent_at || row.started_at), row.attempt))) : []),
    ...(row.ended_at ? line(status(row).label, at(row.ended_at, plus(row, row.ended_at))) : []),
    ...(row.late_at ? line(D.late, at(row.late_at, plus(row, row.late_at))) : []),
    ...(row.attempt ? line(D.silence, D.of(took(longestSilence(row)), span(row.window_ms ?? 120000))) : []),
    ...line(D.sizes, D.bytes(size(bytes("message")), (row.answer || row.late_answer) && size(bytes(row.answer ? "answer" : "late_answer")))),
    ...data("data", D.data), ...data("answer_data", D.answerData),
  ].flat();
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
