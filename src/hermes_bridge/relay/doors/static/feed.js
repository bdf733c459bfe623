// The list of exchanges, newest first. Its order never changes; new rows wait behind a pill unless
// nobody is reading. Rows stand in blocks of fifty; far ones are emptied when there are very many.

import { h, icon } from "./dom.js";
import { Row } from "./row.js";
import { on, store } from "./store.js";
import { day, dayKey, now } from "./time.js";
import { showPresence } from "./who.js";
import { say } from "./words.js";

const BLOCK = 50, MOST = 600, ROW_HEIGHT = 97;
/** How many new rows may wait, and how many may be loaded, before the list begins anew. */
const WAIT = 500, LOADED = 4000;

/** Below 0: `a` stands before `b`, it is newer. */
const order = (a, b) => b.started_at - a.started_at || (a.request_id < b.request_id ? 1 : a.request_id > b.request_id ? -1 : 0);
const rowOf = (rid) => store.rows.get(rid);

export class Feed {
  /** `filter`: what is shown; `unfolded`: ids, kept by the view across visits. */
  constructor({ filter, unfolded, cancel = null, announce = () => {}, restart = () => {}, cutTo = () => {} }) {
    Object.assign(this, { filter, unfolded, cancel, announce, restart, cutTo });
    this.holes = false;
    this.views = new Map();
    this.known = new Set();
    this.blocks = [];
    this.waiting = new Set();
    this.visible = new Set();
    this.list = h("div", { class: "rows", role: "feed", "aria-busy": "true", "aria-label": say.feed.name });
    this.pill = h("button", { class: "new", hidden: true, on: { click: () => this.showNew() } });
    this.el = h("div", { class: "feed" }, this.pill, this.list);
    this.watchRows = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) isIntersecting ? this.visible.add(target.dataset.rid) : this.visible.delete(target.dataset.rid);
    }, { rootMargin: "200px" });
    this.watchBlocks = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.near(target.block, isIntersecting);
    }, { rootMargin: "4000px" });
    this.stop = [on("rows", (rids) => this.changed(rids)), on("agents", () => this.presence()), on("gap", () => this.missed()),
      on("keep", (kept) => { for (const set of [this.known, this.waiting]) for (const rid of set) kept.add(rid); })];
  }

  close() {
    for (const stop of this.stop) stop();
    this.watchRows.disconnect();
    this.watchBlocks.disconnect();
  }

  get words() { return this.filter.words; }
  get size() { return this.known.size; }
  get oldest() { const last = this.blocks.at(-1); return last ? rowOf(last.rids.at(-1)) : null; }

  clear() {
    this.watchRows.disconnect();
    this.watchBlocks.disconnect();
    for (const set of [this.views, this.known, this.waiting, this.visible]) set.clear();
    this.blocks = [];
    this.holes = false;
    this.list.replaceChildren();
    this.updatePill();
  }

  /** Something was missed: begin anew, at once or when the reader asks for what is new. */
  missed() {
    if (this.idle()) this.restart();
    else { this.holes = true; this.updatePill(); }
  }

  /** Gives up the oldest rows of a list that only grows: a page may stay open for weeks. */
  shorten() {
    while (this.known.size > LOADED / 2 && this.blocks.length > 2 && !this.inUse(this.blocks.at(-1))) {
      const block = this.blocks.pop();
      this.watchBlocks.unobserve(block.el);
      for (const rid of block.rids) { this.forget(rid); this.known.delete(rid); }
      block.el.remove();
    }
    this.complete = false;
    this.cutTo(this.oldest);
  }

  busy(busy) { this.list.setAttribute("aria-busy", String(busy)); }

  /** Adds rows in their places. */
  add(rows) {
    const fresh = rows.filter((row) => !this.known.has(row.request_id)).sort(order);
    for (const row of fresh) this.place(row);
    this.renumber();
  }

  place(row) {
    const rid = row.request_id;
    this.known.add(rid);
    this.waiting.delete(rid);
    const index = this.blocks.findLastIndex((block) => order(rowOf(block.rids[0]), row) <= 0);
    const key = dayKey(row.started_at);
    let block = this.blocks[index];
    const atEnd = block && order(rowOf(block.rids.at(-1)), row) <= 0;
    if (!block || block.day !== key || (atEnd && block.rids.length >= BLOCK)) {
      const next = this.blocks[index + 1];
      block = next?.day === key && next.rids.length < 2 * BLOCK && (!block || atEnd) ? next : this.newBlock(index + 1, key);
    }
    const place = block.rids.findIndex((other) => order(rowOf(other), row) > 0);
    block.rids.splice(place < 0 ? block.rids.length : place, 0, rid);
    block.el.style.containIntrinsicBlockSize = `auto ${block.rids.length * ROW_HEIGHT}px`;
    if (!block.full) return;
    const view = this.row(rid);
    const before = place < 0 ? null : this.views.get(block.rids[place + 1])?.el;
    before ? before.before(view.el) : block.el.append(view.el);
    this.header(block);
  }

  newBlock(index, key) {
    const block = { rids: [], day: key, el: h("div", { class: "block" }), full: true, near: true };
    block.el.block = block;
    const next = this.blocks[index];
    next ? next.el.before(block.el) : this.list.append(block.el);
    this.blocks.splice(index, 0, block);
    this.watchBlocks.observe(block.el);
    if (next) this.header(next);
    return block;
  }

  /** A day's first block carries its date. */
  header(block) {
    const first = this.blocks[this.blocks.indexOf(block) - 1]?.day !== block.day;
    const there = block.el.querySelector(":scope > .day");
    if (!first) there?.remove();
    else if (!there && block.rids.length) {
      this.today ??= dayKey(now());
      const [name, date] = day(rowOf(block.rids[0]).started_at);
      block.el.prepend(h("h2", { class: "day" }, name, date && h("span", null, date)));
    }
  }

  /** At midnight today becomes yesterday. */
  newDay(today) {
    if (this.today !== today) for (const block of this.blocks) { block.el.querySelector(":scope > .day")?.remove(); if (block.full) this.header(block); }
    this.today = today;
  }

  row(rid) {
    let view = this.views.get(rid);
    if (!view) {
      view = new Row(rowOf(rid), this);
      this.views.set(rid, view);
      this.watchRows.observe(view.el);
    }
    return view;
  }

  /** A block came near or went far: fill it, or empty far ones when too many rows are in the page. */
  near(block, isNear) {
    block.near = isNear;
    if (isNear && !block.full) {
      block.full = true;
      block.el.style.height = "";
      block.el.replaceChildren(...block.rids.map((rid) => this.row(rid).el));
      this.header(block);
      this.renumber();
    }
    if (this.views.size > MOST) for (const far of this.blocks) if (far.full && !far.near && !this.inUse(far)) this.empty(far);
  }

  /** Takes the rows of a block out of the page; its place stays. */
  empty(block) {
    block.el.style.height = `${block.el.offsetHeight}px`;
    block.full = false;
    for (const rid of block.rids) this.forget(rid);
    block.el.replaceChildren();
  }

  forget(rid) {
    const view = this.views.get(rid);
    if (view) this.watchRows.unobserve(view.el);
    this.views.delete(rid);
    this.visible.delete(rid);
  }

  inUse(block) {
    if (block.el.contains(document.activeElement) || block.rids.some((rid) => this.unfolded.has(rid))) return true;
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(block.el, true);
  }

  renumber() {
    cancelIdleCallback?.(this.numbering);
    const number = () => {
      let n = 0;
      const all = String(this.complete ? this.known.size : -1);
      for (const block of this.blocks) for (const rid of block.rids) {
        n += 1;
        const el = this.views.get(rid)?.el;
        if (!el) continue;
        if (el.ariaPosInSet !== String(n)) el.ariaPosInSet = String(n);
        if (el.ariaSetSize !== all) el.ariaSetSize = all;
      }
    };
    this.numbering = window.requestIdleCallback ? requestIdleCallback(number) : setTimeout(number, 200);
  }

  /** Some exchanges changed: patch those that are shown, hold back those that are new. */
  changed(rids) {
    const fresh = [];
    const oldest = this.oldest;
    for (const rid of rids) {
      const row = rowOf(rid), view = this.views.get(rid);
      if (view) { if (view.row !== row) view.update(row); continue; }
      if (this.known.has(rid) || this.waiting.has(rid)) continue;
      if (this.filter.matches(row, now()) && (!oldest || this.complete || order(row, oldest) < 0)) fresh.push(row);
    }
    if (!fresh.length) return;
    if (this.idle()) {
      this.add(fresh);
      if (this.known.size > LOADED) this.shorten();
    } else for (const row of fresh) {
      if (this.waiting.size < WAIT) this.waiting.add(row.request_id); else this.holes = true;
    }
    this.announce(fresh.length);
    this.updatePill();
  }

  /** Whether nobody reads: at the top, nothing unfolded or selected, the window in front. */
  idle() {
    return this.el.isConnected && scrollY < 8 && !this.unfolded.size && getSelection().isCollapsed && document.hasFocus() && !this.list.contains(document.activeElement);
  }

  showNew() {
    scrollTo({ top: 0 });
    if (this.holes) { this.restart(); return; }
    const rows = [...this.waiting].map(rowOf).sort(order);
    this.add(rows);
    this.updatePill();
    if (rows.length) this.views.get(rows[0].request_id)?.el.focus({ preventScroll: true });
  }

  updatePill() {
    const n = this.waiting.size;
    this.pill.hidden = !n && !this.holes;
    this.pill.replaceChildren(icon("up"), say.feed.fresh(n > 99 || this.holes ? "99+" : n));
  }

  presence() {
    for (const view of this.views.values()) showPresence(view.route, store.agents);
  }

  toggle(rid, open = !this.unfolded.has(rid)) {
    const view = this.views.get(rid);
    if (!view) return;
    const top = view.el.getBoundingClientRect().top;
    open ? this.unfolded.add(rid) : this.unfolded.delete(rid);
    const held = view.el.contains(document.activeElement) && document.activeElement !== view.el;
    view.update();
    if (held) (view.el.querySelector("button[aria-expanded]") ?? view.el).focus({ preventScroll: true });
    if (!open && top < 60) view.el.scrollIntoView({ block: "start" });
  }

  /** The row that holds the focus. */
  get current() {
    const el = document.activeElement?.closest?.(".ex");
    return el && this.list.contains(el) ? this.views.get(el.dataset.rid) : null;
  }

  /** Moves the focus by so many rows. */
  move(step) {
    const all = [...this.list.querySelectorAll(".ex")];
    const here = all.indexOf(this.current?.el);
    const from = here >= 0 ? here + step : all.findIndex((el) => el.getBoundingClientRect().bottom > 60);
    const el = all[Math.max(0, Math.min(all.length - 1, from))];
    el?.focus({ preventScroll: true });
    el?.scrollIntoView({ block: "nearest" });
  }

  /** Once a second: what is open and in view. */
  tick(at) {
    this.newDay(dayKey(at));
    for (const rid of this.visible) {
      const view = this.views.get(rid);
      if (view && !view.row.ended_at) view.tick(at);
    }
  }
}
