// Builds elements. Text goes in as text nodes only; nothing here parses markup.

export const BASE = new URL(".", import.meta.url).pathname.replace(/\/$/, "");
const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("p", { class: "say", on: { click } }, "text", child, null)`. */
export function h(tag, props = null, ...children) {
  const element = document.createElement(tag);
  set(element, props);
  element.append(...flat(children));
  return element;
}

export function svg(tag, props = null, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, props);
  element.append(...flat(children));
  return element;
}

function set(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "data") Object.assign(element.dataset, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
}

/** Replaces what an element holds; leaves out what is false or empty. */
export const fill = (element, ...children) => element.replaceChildren(...flat(children));

const flat = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");

const FOCUSABLE = "a[href], button, input, summary, [tabindex]";

/** Redraws a part of the page; what had the focus, or what stands in its place, has it again. */
export function keepFocus(root, draw) {
  const held = root.contains(document.activeElement) && document.activeElement;
  if (!held) { draw(); return; }
  const keyed = held.closest("[data-key]");
  const key = keyed !== root && root.contains(keyed) ? keyed.dataset.key : null;
  const index = [...(key === null ? root : keyed).querySelectorAll(FOCUSABLE)].indexOf(held);
  const href = held.getAttribute("href"), text = held.textContent;
  draw();
  if (document.activeElement === held) return;
  if (root.contains(held)) { held.focus({ preventScroll: true }); return; }
  const scope = key === null ? root : root.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!scope) return;
  const all = [...scope.querySelectorAll(FOCUSABLE)];
  const alike = all.find((one) => (href === null ? one.textContent === text : one.getAttribute("href") === href));
  (index < 0 ? scope : alike ?? all[Math.min(index, all.length - 1)] ?? scope).focus({ preventScroll: true });
}

/** Puts in what was drawn anew if it differs; focus stays, and lists stay scrolled as they were. Says whether. */
export function renew(element, ...children) {
  const made = flat(children), drawn = made.map((child) => child.outerHTML ?? child).join("");
  if (element.drawn === drawn) return false;
  element.drawn = drawn;
  const tops = [...element.querySelectorAll("ul")].map((list) => list.scrollTop);
  keepFocus(element, () => element.replaceChildren(...made));
  [...element.querySelectorAll("ul")].forEach((list, i) => { if (tops[i]) list.scrollTop = tops[i]; });
  return true;
}

/** Makes these the children, in this order; those that stay are not touched. */
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, i) => { if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null); });
}

/** Whether somebody has selected text in a part of the page: it is not to be redrawn now. */
export function selected(root) {
  const selection = getSelection();
  return !selection.isCollapsed && root.contains(selection.anchorNode);
}

/** A part of an address as text; as it stands if it is malformed. */
export function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

export const icon = (name, kind = "i") =>
  svg("svg", { class: kind, "aria-hidden": "true" }, svg("use", { href: `${BASE}/sprite.svg#${name}` }));

// Controls and marks without width (but for the joiners that scripts and emoji need), bidi overrides.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb]/g;

const shown = (code) => (code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "\u2421" : "\u2423");

/** Somebody's text as nodes: hidden characters become dim marks, `words` become <mark>. */
export function says(text, words = []) {
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    nodes.push(...marked(text.slice(last, match.index), words));
    const code = match[0].codePointAt(0);
    nodes.push(h("span", { class: "ctl", title: `U+${code.toString(16).toUpperCase().padStart(4, "0")}` }, shown(code)));
    last = match.index + match[0].length;
  }
  nodes.push(...marked(text.slice(last), words));
  return nodes;
}

function marked(text, words) {
  if (!text) return [];
  const lower = words.length ? text.toLowerCase() : "";
  if (!words.length || lower.length !== text.length) return [text];
  const nodes = [];
  let at = 0;
  while (at < text.length) {
    let hit = -1, size = 0;
    for (const word of words) {
      const found = lower.indexOf(word, at);
      if (found >= 0 && (hit < 0 || found < hit)) { hit = found; size = word.length; }
    }
    if (hit < 0) break;
    if (hit > at) nodes.push(text.slice(at, hit));
    nodes.push(h("mark", null, text.slice(hit, hit + size)));
    at = hit + size;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

export const bdi = (text, words) => h("bdi", { dir: "auto" }, says(text, words));

/** Cuts at `limit` graphemes, at a word's end if one is within 20; null if it fits. */
export function cut(text, limit = 180) {
  if (text.length <= limit) return null;
  const head = text.slice(0, limit * 16);
  let end = 0, count = 0;
  if (Intl.Segmenter) {
    for (const part of new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(head)) {
      if (count === limit) break;
      count += 1;
      end = part.index + part.segment.length;
    }
  } else end = limit;
  if (end >= text.length) return null;
  const word = head.slice(0, end).search(/\s\S{0,19}$/);
  return head.slice(0, word > 0 ? word : end).trimEnd();
}
