// The list of exchanges, newest first. Its order never changes; new rows wait behind a pill unless
// nobody is reading.

import { h, icon } from "./dom.js";
import { Row } from "./row.js";
import { on, store } from "./store.js";
import { day, dayKey, now } from "./time.js";

const BLOCK = 50;
const later = (a, b) => b.started_at - a.started_at || (a.request_id < b.request_id ? 1 : -1);

export class Feed {
  /** `filter`: what is shown; `unfolded`: ids, kept by the view across visits. */
  constructor({ filter, unfolded, cancel = null, announce = () => {} }) {
    Object.assign(this, { filter, unfolded, cancel, announce });
    this.rows = new Map();
    this.waiting = new Set();
    this.words = filter.words;
    this.list = h("div", { class: "rows", role: "feed", "aria-busy": "true", "aria-label": "Exchanges" });
    this.pill = h("button", { class: "new", hidden: true, on: { click: () => this.showNew() } });
    this.el = h("div", { class: "feed" }, this.pill, this.list);
    this.visible = new Set();
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) isIntersecting ? this.visible.add(target.dataset.rid) : this.visible.delete(target.dataset.rid);
    }, { rootMargin: "200px" });
    this.stop = [on("rows", (rids) => this.changed(rids)), on("agents", () => this.presence())];
  }

  close() {
    for (const stop of this.stop) stop();
    this.observer.disconnect();
  }

  /** Shows these rows and no others. */
  show(rows) {
    const active = document.activeElement?.closest?.(".ex")?.dataset.rid;
    this.words = this.filter.words;
    this.waiting.clear();
    this.rows.clear();
    this.visible.clear();
    this.observer.disconnect();
    this.list.replaceChildren();
    this.add(rows);
    this.updatePill();
    this.list.setAttribute("aria-busy", "false");
    if (active) this.rows.get(active)?.el.focus({ preventScroll: true });
  }

  /** Adds rows in their places. */
  add(rows) {
    for (const row of [...rows].sort(later)) {
      if (this.rows.has(row.request_id)) continue;
      const view = new Row(row, this);
      this.rows.set(row.request_id, view);
      this.place(view);
      this.observer.observe(view.el);
    }
    this.number();
  }

  place(view) {
    const blocks = [...this.list.children];
    let block = blocks.findLast((el) => later(this.first(el), view.row) <= 0) ?? blocks[0];
    const key = dayKey(view.row.started_at);
    if (!block || Number(block.dataset.day) !== key || (block.childElementCount > BLOCK && this.atEdge(block, view))) {
      const after = block && later(this.first(block), view.row) <= 0 ? block : null;
      const sameDay = (el) => el && Number(el.dataset.day) === key;
      const next = after ? after.nextElementSibling : this.list.firstElementChild;
      if (!after && sameDay(next) && next.childElementCount <= BLOCK) { block = next; } else {
        block = h("div", { class: "block", data: { day: String(key) } });
        after ? after.after(block) : this.list.prepend(block);
        if (sameDay(next)) next.querySelector(":scope > .day")?.remove();
        if (!sameDay(after)) block.append(this.header(view.row.started_at));
      }
    }
    const before = [...block.querySelectorAll(":scope > .ex")].find((el) => later(this.rows.get(el.dataset.rid).row, view.row) > 0);
    before ? before.before(view.el) : block.append(view.el);
  }

  first(block) { return this.rows.get(block.querySelector(":scope > .ex").dataset.rid).row; }

  atEdge(block, view) {
    const rows = block.querySelectorAll(":scope > .ex");
    const last = this.rows.get(rows[rows.length - 1].dataset.rid).row;
    return later(last, view.row) < 0 || later(this.first(block), view.row) > 0;
  }

  header(ms) {
    const [name, date] = day(ms);
    return h("h2", { class: "day" }, name, date && h("span", null, date));
  }

  number() {
    let n = 0;
    for (const el of this.list.querySelectorAll(".ex")) el.setAttribute("aria-posinset", String((n += 1)));
    for (const el of this.list.querySelectorAll(".ex")) el.setAttribute("aria-setsize", "-1");
  }

  get oldest() {
    const last = [...this.list.querySelectorAll(".ex")].at(-1);
    return last ? this.rows.get(last.dataset.rid).row : null;
  }

  /** Some exchanges changed: patch those that are shown, hold back those that are new. */
  changed(rids) {
    const fresh = [];
    const oldest = this.oldest;
    for (const rid of rids) {
      const row = store.rows.get(rid), view = this.rows.get(rid);
      if (view) { if (view.row !== row) view.update(row); } else if (this.filter.matches(row, now()) && (!oldest || later(row, oldest) < 0)) fresh.push(row);
    }
    if (!fresh.length) return;
    if (this.idle()) this.add(fresh);
    else for (const row of fresh) this.waiting.add(row.request_id);
    this.announce(fresh.length);
    this.updatePill();
  }

  /** Whether nobody reads: at the top, nothing unfolded or selected, the window in front. */
  idle() {
    return scrollY < 8 && !this.unfolded.size && !String(getSelection()) && document.hasFocus() && !document.activeElement?.closest?.(".ex");
  }

  showNew() {
    const rows = [...this.waiting].map((rid) => store.rows.get(rid));
    this.waiting.clear();
    scrollTo({ top: 0 });
    this.add(rows);
    this.updatePill();
    this.rows.get(rows.sort(later)[0]?.request_id)?.el.focus({ preventScroll: true });
  }

  updatePill() {
    const n = this.waiting.size;
    this.pill.hidden = !n;
    this.pill.replaceChildren(icon("up"), `${n > 99 ? "99+" : n} new`);
  }

  presence() {
    for (const dot of this.el.querySelectorAll("i[data-presence]")) {
      const agent = store.agents.get(dot.dataset.presence);
      if (agent) dot.className = agent.presence;
    }
  }

  toggle(rid, open = !this.unfolded.has(rid)) {
    const view = this.rows.get(rid);
    if (!view) return;
    const top = view.el.getBoundingClientRect().top;
    open ? this.unfolded.add(rid) : this.unfolded.delete(rid);
    const held = view.el.contains(document.activeElement);
    view.update();
    if (held) (view.el.querySelector("button[aria-expanded]") ?? view.el).focus({ preventScroll: true });
    if (!open && top < 60) view.el.scrollIntoView({ block: "start" });
  }

  /** Once a second: what is open and in view. */
  tick(at) {
    for (const rid of this.visible) {
      const view = this.rows.get(rid);
      if (view && !view.row.ended_at) view.tick(at);
    }
  }
}
