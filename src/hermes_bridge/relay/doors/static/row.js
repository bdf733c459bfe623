// One exchange in the feed: route, message, outcome. Built once, patched part by part, so that
// focus and selection survive every update.

import { bdi, cut, h, icon, keepFocus, says } from "./dom.js";
import { drawDone, drawOpen, newPulse } from "./pulse.js";
import { atRisk, badge, badgeKey, isOpen, isRefused, lostSince, reason, silence, spokenRow, status } from "./status.js";
import { ask, store } from "./store.js";
import { hms, iso, now, size, span, timer, title, took } from "./time.js";
import { named, who } from "./who.js";
import { say } from "./words.js";

const W = say.row, LINES = 40;
const SHOWN = 4000;

const turns = new Map();

/** Which exchange of its conversation this is; asked of the relay when somebody looks closer. */
async function learnTurn(rid, then) {
  if (turns.has(rid)) return;
  if (turns.size > 1000) turns.clear();
  turns.set(rid, 0);
  const found = await ask(`/ui/api/exchanges/${encodeURIComponent(rid)}`).catch(() => ({}));
  turns.set(rid, found.turn ?? 0);
  if (found.turn) then();
}

/** Where the trace of an exchange can be seen, if the configuration says so. */
export function traceLink(row, text = W.trace) {
  const id = row.trace?.split("-")[1];
  return id && store.traceUrl ? h("a", { class: "out-link", href: store.traceUrl.replace("{trace_id}", encodeURIComponent(id)), target: "_blank", rel: "noreferrer" }, text) : null;
}

/** Copies text; says so in the button for two seconds. */
export async function copy(text, button, said) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "sr", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy"); // the only way on a page without TLS
    area.remove();
  }
  const label = button.querySelector("span") ?? button;
  const before = label.textContent;
  label.textContent = said;
  setTimeout(() => { label.textContent = before; }, 2000);
}

export const exchangeLink = (row) => `/ui/c/${encodeURIComponent(row.conversation_id)}#r=${encodeURIComponent(row.request_id)}`;

/** The whole text of a field, fetched if the list held only its beginning. */
export async function whole(row, field) {
  if (!row.sizes?.[field]) return row[field] ?? "";
  return (await ask(`/ui/api/exchanges/${encodeURIComponent(row.request_id)}`))[field] ?? "";
}

/** A long text: its first part, and *Show all* for the rest in a box that scrolls. */
export function longText(row, field, words, kind = "") {
  const text = row[field] ?? "";
  const lines = text.split("\n");
  const short = lines.length > LINES ? lines.slice(0, LINES).join("\n") : text;
  const part = short.length > SHOWN ? short.slice(0, SHOWN) : short;
  const box = h("div", { class: `text ${kind}`, dir: "auto" }, says(part, words));
  if (part.length === text.length && !row.sizes?.[field]) return box;
  const bytes = row.sizes?.[field] ?? new TextEncoder().encode(text).length;
  const button = h("button", { class: "link", on: { click: async () => {
    button.disabled = true;
    try {
      const all = await whole(row, field);
      box.replaceChildren(...says(all, []));
      box.classList.add("tall");
      box.tabIndex = 0;
      button.remove();
    } catch { button.disabled = false; button.textContent = say.trouble.loadAgain; }
  } } }, W.all(size(bytes)));
  return [box, button];
}

export class Row {
  constructor(row, view) {
    this.view = view;
    this.keys = {};
    this.pulse = null;
    const id = `r-${row.request_id}`;
    this.time = h("time", { datetime: iso(row.started_at), title: title(row.started_at) }, hms(row.started_at));
    this.route = h("div", { class: "route" });
    this.end = h("div", { class: "end" });
    this.took = h("span", { class: "took" });
    this.say = h("div", { class: "say" });
    this.rest = [];
    this.el = h("article", { class: "ex", id, tabindex: "-1", data: { rid: row.request_id } }, this.time, this.route, this.end, this.say);
    this.el.addEventListener("click", (event) => this.clicked(event));
    this.update(row);
  }

  get rid() { return this.row.request_id; }

  clicked(event) {
    if (event.target.closest("a, button, input, [tabindex='0']") || String(getSelection())) return;
    if (this.unfolded && event.target.closest(".bubble, .text")) return;
    this.view.toggle(this.rid);
  }

  part(name, key, draw) {
    if (this.keys[name] === key) return;
    this.keys[name] = key;
    draw();
  }

  update(row = this.row) {
    this.row = row;
    this.unfolded = this.view.unfolded.has(row.request_id);
    const at = now(), { agents } = store, words = this.view.words;
    const said = words.join("\u0000");
    this.el.classList.toggle("open-row", this.unfolded);
    this.el.setAttribute("aria-label", spokenRow(row));
    this.part("route", said + agents.has(row.from) + agents.has(row.to), () => {
      this.route.replaceChildren(who(row.from, agents.get(row.from), { words }), icon("to"), h("span", { class: "sr" }, say.spoken.asked), who(row.to, agents.get(row.to), { words }));
    });
    this.part("say", `${this.unfolded}${said}${row.message.length}${!this.unfolded && hides(row)}`, () => this.drawMessage(row, words));
    if (this.unfolded && !isRefused(row)) learnTurn(row.request_id, () => this.update());
    const outcome = JSON.stringify([this.unfolded, this.unfolded && turns.get(row.request_id), said, row.status, row.answer, row.error, row.late_at, row.fetched_at, row.attempt, isOpen(row), store.canCancel]);
    this.part("rest", outcome, () => this.drawOutcome(row, words));
    this.keys.beat = null;
    this.tick(at);
  }

  /** What moves with time alone. */
  tick(at) {
    const row = this.row;
    this.part("end", badgeKey(row, at), () => this.end.replaceChildren(badge(row, at), this.took));
    const text = isOpen(row) ? timer(at - row.started_at) : isRefused(row) || row.ended_at === row.started_at ? say.unknown : took(row.ended_at - row.started_at);
    if (this.took.textContent !== text) this.took.textContent = text;
    if (isOpen(row) && this.pulse) {
      drawOpen(this.pulse, row, at, { ticks: this.pulse.clientWidth >= 160 });
      const note = row.status === "queued" ? say.pending.queued(named(row.to)) : [row.note ? h("b", null, bdi(row.note)) : say.pending.waiting];
      this.part("note", `${row.status}${row.note}`, () => this.note.replaceChildren(...note));
      const left = countdown(row, at);
      if (this.left.textContent !== left) this.left.textContent = left;
    }
  }

  drawMessage(row, words) {
    const button = h("button", { class: "link", "aria-expanded": String(this.unfolded), "aria-controls": this.el.id, on: { click: () => this.view.toggle(row.request_id) } }, W.more, h("span", { class: "sr" }, say.spoken.of(row.from, row.to)));
    if (this.unfolded) {
      this.say.replaceChildren(...[longText(row, "message", words)].flat());
      return;
    }
    const head = hit(row, "message", words, 180) ?? cut(row.message.replace(/\s+/gu, " ").trim());
    if (head === null && !hides(row)) button.className = "link quiet";
    if (!row.message.trim()) {
      this.say.replaceChildren(h("span", { class: "dim" }, W.noText), " ", button);
      return;
    }
    this.say.replaceChildren(h("span", { class: "text", dir: "auto" }, says(head === null ? row.message.replace(/\s+/gu, " ") : `${head}…`, words)), " ", button);
  }

  drawOutcome(row, words) {
    keepFocus(this.el, () => {
      for (const el of this.rest) el.remove();
      this.pulse = null;
      this.rest = this.unfolded ? this.whole(row, words) : [this.oneLine(row, words)];
      this.el.append(...this.rest);
    });
  }

  pulseBox(row) {
    this.pulse = newPulse();
    this.note = h("span", { class: "note" });
    this.left = h("span", { class: "push" });
    this.keys.note = null;
    return h("div", { class: "full" }, this.pulse, h("p", { class: "facts" }, this.note, this.left));
  }

  oneLine(row, words) {
    if (isOpen(row)) return this.pulseBox(row);
    const tone = { bad: "bad", ref: "ref", off: "off" }[status(row).tone] ?? "";
    const first = (field) => {
      const line = (row[field] ?? "").trim().split("\n", 1)[0].slice(0, 300);
      return says(hit(row, field, words, Math.min(140, line.length)) ?? (line || W.empty), words);
    };
    if (row.late_at) return h("div", { class: "out" }, icon("late"), h("p", null, h("span", { class: "st s-warn" }, say.status.late), h("bdi", { dir: "auto" }, first("late_answer"))));
    if (row.status === "ok") return h("div", { class: "out" }, icon("reply"), h("p", { dir: "auto" }, first("answer")));
    return h("div", { class: `out ${tone}` }, icon("reply"), h("p", null, reason(row, store.limits, store.agents.get(row.to))));
  }

  whole(row, words) {
    const parts = [];
    if (isOpen(row)) parts.push(this.pulseBox(row));
    else if (row.status !== "ok") parts.push(this.oneLine({ ...row, late_at: 0 }, words));
    if (row.answer !== undefined && row.status === "ok") parts.push(h("div", { class: "full bubble" }, longText(row, "answer", words)));
    if (row.late_at) parts.push(h("div", { class: "full bubble late" }, longText(row, "late_answer", words), h("p", { class: "facts" }, lateFacts(row))));
    parts.push(h("p", { class: "full facts" }, facts(row)));
    parts.push(this.actions(row));
    return parts;
  }

  actions(row) {
    const long = (field) => (row.sizes?.[field] ?? row[field]?.length ?? 0) > 1000;
    const copies = (field, label) => long(field) && h("button", { on: { click: async (event) => { const button = event.currentTarget; await copy(await whole(row, field), button, W.copied); } } }, icon("copy"), h("span", null, label));
    return h("div", { class: "full acts" },
      h("a", { class: "go", href: exchangeLink(row) }, W.open),
      h("button", { on: { click: (event) => copy(new URL(exchangeLink(row), location.href).href, event.currentTarget, W.linkCopied) } }, icon("copy"), h("span", null, W.copyLink)),
      traceLink(row, [icon("out"), W.trace]),
      copies("message", W.copyMessage), copies(row.late_at ? "late_answer" : "answer", W.copyAnswer),
      isOpen(row) && store.canCancel && this.view.cancel && h("button", { on: { click: () => this.view.cancel(row) } }, icon("cancelled"), h("span", null, W.cancel)),
      h("button", { class: "link push", "aria-expanded": "true", on: { click: () => this.view.toggle(row.request_id) } }, W.less, h("span", { class: "sr" }, say.spoken.of(row.from, row.to))));
  }
}

const hides = (row) => {
  const text = row.late_at ? row.late_answer ?? "" : row.answer ?? "";
  return text.length > 100 || text.includes("\n");
};

/** The text around the first hit, if the part that would be shown (so many characters) does not hold it. */
function hit(row, field, words, shown) {
  if (!words.length) return null;
  const text = row[field] ?? "", lower = text.toLowerCase();
  const at = Math.min(...words.map((word) => lower.indexOf(word)).filter((i) => i >= 0));
  const around = Number.isFinite(at) ? text.slice(Math.max(0, at - 60), at + 120) : row.hits?.[field];
  return around && !(at <= Math.max(0, shown - 20)) ? `…${around.replace(/\s+/gu, " ")}` : null;
}

/** "Silent 0:03, times out in 1:57", or what else bounds it. */
export function countdown(row, at, brief = false) {
  const P = say.pending;
  const left = Math.max(0, (row.deadline ?? at) - at);
  if (row.status === "queued") return brief ? "" : P.left(timer(row.queue_until > at ? row.queue_until - at : left));
  if (row.cap_at && row.deadline >= row.cap_at) return P.cap(span(row.cap_at - row.started_at), timer(left));
  if (lostSince(row)) return P.lost(timer(at - lostSince(row)), timer(left));
  if (brief && !atRisk(row, at)) return P.left(timer(left));
  return P.silent(timer(silence(row, at)), timer(left));
}

export function lateFacts(row) {
  return [h("span", null, W.lateBy(took(row.late_at - row.ended_at)), row.fetched_at ? W.fetched(named(row.from), hms(row.fetched_at)) : W.notFetched)];
}

export function facts(row) {
  const fact = (strong, text) => h("span", null, h("b", null, strong), ` ${text}`);
  const beats = row.beats ?? 0;
  return [
    row.taken_at && fact(W.taken, W.after(took(row.taken_at - row.started_at))),
    beats > 0 && fact(String(beats), W.heartbeats(beats)),
    row.attempt > 1 && fact(W.attempt, String(row.attempt)),
    turns.get(row.request_id) && fact(W.turn, String(turns.get(row.request_id))),
    row.depth > 0 && fact(W.nested, W.deep(row.depth)),
    h("span", { class: "mono" }, row.request_id),
  ].filter(Boolean);
}
