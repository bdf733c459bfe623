// The view Map: who asks whom, as a ring; the same in a table beside it.

import { bdi, fill, h, icon, renew, selected, svg } from "./dom.js";
import { percent } from "./rail.js";
import { curve, DRAWN, EDGES, frame, label, radius, spot, thickness } from "./ring.js";
import { isOpen } from "./status.js";
import { ask, on, store } from "./store.js";
import { about } from "./time.js";
import { linked, named, presence, short, square } from "./who.js";
import { number, say } from "./words.js";

const MANY = 2000;
const W = say.map, RANGES = Object.entries(W.ranges);
const FROM = { "15m": "-15m", "1h": "-1h", "24h": "-24h", "7d": "-7d" };
const share = (pair) => (pair.asks - pair.open ? pair.failed / (pair.asks - pair.open) : 0);
const brief = (part) => say.unit.part(Math.round(part * 100));
const clip = (name, most) => ([...name].length > most ? `${[...name].slice(0, most - 1).join("")}…` : name);
const natural = (a, b) => a.localeCompare(b, undefined, { numeric: true });

export function map(query, app) {
  const view = { range: RANGES.some(([range]) => range === query.get("range")) ? query.get("range") : "24h", chosen: query.get("a") ?? "", table: query.get("as") === "table", zoom: 1, x: 0, y: 0 };
  const narrow = matchMedia("(max-width: 639px)");
  const sum = h("div", { class: "sum" }), canvas = h("div", { class: "canvas" }), legend = h("p", { class: "legend" }), rail = h("aside", { class: "rail", "aria-label": W.pairs });
  const panel = h("section", { class: "panel map", "aria-label": W.panel }, canvas, legend);
  const links = h("ul", { class: "sr", "aria-label": W.links });
  const el = h("div", { class: "page waiting" }, sum, h("div", { class: "cols tail" }, h("div", null, links, panel), rail));
  let counts = null, due = 0, closed = false, lit = "", picture = null, typed = "", typedAt = 0;
  let shapes = new Map(), drawnNow = new Map();
  const gliding = [];

  function address() {
    const made = new URLSearchParams();
    if (view.range !== "24h") made.set("range", view.range);
    if (view.chosen) made.set("a", view.chosen);
    if (view.table) made.set("as", "table");
    app.replace("/ui/map", made);
  }

  async function load() {
    due = Date.now() + 10000;
    const range = view.range;
    const found = await ask(`/ui/api/counts?range=${range}`).catch(() => null);
    el.classList.remove("waiting");
    if (closed || range !== view.range) return;
    if (!found) {
      if (!counts) canvas.replaceChildren(h("div", { class: "none" }, h("p", null, say.trouble.load, " ", h("button", { class: "link", on: { click: load } }, say.trouble.again))));
      return;
    }
    if (!found.complete) due = Date.now() + 700;
    counts = found;
    refresh();
  }

  /** Draws what the relay told; not while somebody selects text here. */
  const refresh = () => { if (!selected(el)) draw(); };

  const choose = (name) => { view.chosen = view.chosen === name ? "" : name; lit = ""; address(); draw(); };
  const set = (key, value) => (event) => {
    view[key] = value;
    for (const one of event.currentTarget.parentElement.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
    address();
    if (key === "range") load(); else draw();
  };
  const seg = h("div", { class: "seg push", role: "group", "aria-label": say.agents.range }, RANGES.map(([range, label]) => h("button", { "aria-pressed": String(range === view.range), on: { click: set("range", range) } }, label)));
  const asTable = h("button", { class: "pick", "aria-pressed": String(view.table), on: { click: () => { view.table = !view.table; address(); draw(); } } }, W.table);
  const figures = h("span", { class: "figures" });
  sum.append(h("h1", null, say.views.map), figures, h("span", { class: "tools" }, asTable), seg);

  function draw() {
    asTable.classList.toggle("on", view.table);
    asTable.setAttribute("aria-pressed", String(view.table));
    if (!counts) return;
    const pairs = counts.pairs.filter((pair) => pair.asks);
    const names = new Set([...store.agents.keys(), ...pairs.flatMap((pair) => [pair.from, pair.to]).filter((name) => store.agents.has(name))]);
    const busy = new Map([...names].map((name) => [name, 0]));
    for (const pair of pairs) for (const name of [pair.from, pair.to]) if (busy.has(name)) busy.set(name, busy.get(name) + pair.asks);
    let drawn = [...names];
    if (drawn.length > DRAWN) drawn = drawn.sort((a, b) => busy.get(b) - busy.get(a)).slice(0, DRAWN);
    drawn.sort(natural);
    const all = `from=${FROM[view.range]}`;
    renew(figures, h("p", null, h("a", { href: `/ui?${all}` }, h("b", null, number(counts.asks)), W.between(counts.asks)), h("b", null, String(names.size)), W.agents), counts.asks - counts.open ? h("p", null, h("a", { href: `/ui?status=unanswered&${all}` }, h("b", null, percent(counts.failed / Math.max(1, counts.asks - counts.open))), W.failed)) : "", !counts.complete && h("p", { class: "dim" }, say.agents.counting));
    if (view.table) table(pairs); else ring(pairs, drawn, busy, names.size);
    side(pairs);
  }

  /** Lets a shape glide from how it was drawn last to how it is now: `key` names it, styles do the rest. */
  function glide(key, element, names) {
    const now_ = {}, was = shapes.get(key);
    for (const name of names) now_[name] = element.getAttribute(name);
    drawnNow.set(key, now_);
    if (!was || names.every((name) => was[name] === now_[name])) return element;
    for (const name of names) element.setAttribute(name, was[name]);
    gliding.push([element, now_]);
    return element;
  }

  function glideAll() {
    shapes = drawnNow;
    drawnNow = new Map();
    const moves = gliding.splice(0);
    if (moves.length) canvas.getBoundingClientRect(); // the old shape must have been laid out once
    for (const [element, attributes] of moves) for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  }

  // The picture

  function ring(pairs, names, busy, total) {
    const f = frame(names.length, narrow.matches);
    const place = new Map(names.map((name, i) => [name, spot(f, i, names.length)]));
    const most = Math.max(1, ...pairs.map((pair) => pair.asks)), busiest = Math.max(1, ...names.map((name) => busy.get(name)));
    const size = new Map(names.map((name) => [name, radius(busy.get(name), busiest, f.dense)]));
    const waiting = new Set([...store.rows.values()].filter(isOpen).map((row) => `${row.from}\u0000${row.to}`));
    let edges = pairs.filter((pair) => place.has(pair.from) && place.has(pair.to) && pair.from !== pair.to).sort((a, b) => a.asks - b.asks);
    const left = edges.length - EDGES;
    if (left > 0) edges = edges.slice(-EDGES);
    const least = edges[0]?.asks;
    const nodes = new Map(), groups = [];
    const back = svg("g"), front = svg("g"), dots = svg("g");
    for (const pair of edges) {
      const part = share(pair), width = thickness(pair.asks, most, f.dense);
      const c = curve(f, place.get(pair.from), place.get(pair.to), { width, share: part, gapFrom: size.get(pair.from) + 2, gapTo: size.get(pair.to) + 2 });
      const hot = waiting.has(`${pair.from}\u0000${pair.to}`);
      const title = W.edge(pair.from, pair.to, number(pair.asks), number(pair.failed));
      const label = part >= 0.1 && pair.asks >= 10 && svg("text", { class: "pc", "text-anchor": "middle", x: (c.at.x + (f.dense ? 0 : 18)).toFixed(0), y: c.at.y.toFixed(0) }, brief(part));
      const g = svg("g", null, svg("title", null, title), c.body && glide(`${pair.from}\n${pair.to}\nb`, svg("path", { class: "e", d: c.body, "stroke-width": width.toFixed(1) }), ["d", "stroke-width"]),
        c.rest && glide(`${pair.from}\n${pair.to}\nr`, svg("path", { class: "e f", d: c.rest, "stroke-width": width.toFixed(1), "stroke-dasharray": f.dense ? "2 1.5" : "4 2.5" }), ["d", "stroke-width"]),
        svg("path", { class: `tip${c.rest ? " f" : ""}`, d: c.tip }), label);
      g.addEventListener("click", () => app.go(between(pair)));
      groups.push({ g, pair, hot, label });
      back.append(g);
    }
    for (const name of names) {
      const p = place.get(name), r = size.get(name), how = presence(store.agents.get(name));
      const cos = Math.cos(p.angle), sin = Math.sin(p.angle);
      const dot = glide(name, svg("circle", { class: `nd ${how}`, cx: p.x.toFixed(1), cy: p.y.toFixed(1), r: r.toFixed(1) }), ["r"]);
      const halo = svg("circle", { class: "halo", cx: p.x.toFixed(1), cy: p.y.toFixed(1), r: (r + (f.dense ? 2.5 : 4)).toFixed(1) });
      let text;
      if (f.dense) {
        const flip = cos < -0.001, turn = (p.angle * 180) / Math.PI + (flip ? 180 : 0), away = r + 4;
        const x = p.x + cos * away, y = p.y + sin * away;
        text = svg("text", { class: how, x: x.toFixed(1), y: y.toFixed(1), "text-anchor": flip ? "end" : "start", "dominant-baseline": "middle", transform: `rotate(${turn.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)})` }, clip(name, f.narrow ? 11 : 18));
      } else {
        const said = f.narrow ? short(name).replace(/[-_](bot|agent)$/i, "") : short(name);
        const { x, y, anchor, letters } = label(f, p, r, [...said].length);
        text = svg("text", { class: how, "text-anchor": anchor, x: x.toFixed(1), y: y.toFixed(1) }, clip(said, letters));
      }
      const g = svg("a", { href: `/ui/map?a=${encodeURIComponent(name)}`, tabindex: "-1", "aria-label": name }, halo, dot, svg("circle", { class: "hit", cx: p.x.toFixed(1), cy: p.y.toFixed(1), r: Math.max(r, Math.min(f.narrow ? 22 : 12, (Math.PI * f.rx) / names.length)).toFixed(1), fill: "transparent" }), text);
      g.addEventListener("click", (event) => { if (event.ctrlKey || event.metaKey) return; event.preventDefault(); choose(name); });
      g.addEventListener("pointerenter", () => light(name));
      g.addEventListener("pointerleave", () => light(""));
      nodes.set(name, { dot, halo, text });
      dots.append(g);
    }
    const picture_ = svg("svg", { class: `net${f.dense ? " dense" : ""}`, viewBox: `0 0 ${f.w} ${f.h}`, role: "img", "aria-label": W.picture(W.last[view.range]) }, back, front, dots);
    picture = { f, nodes, groups, back, front, el: picture_ };
    if (canvas.firstChild?.nodeName !== "svg") { canvas.drawn = null; canvas.replaceChildren(picture_); } else canvas.firstChild.replaceWith(picture_);
    if (f.dense !== Boolean(canvas.children[1])) f.dense ? canvas.append(zoomer()) : canvas.lastChild.remove();
    applyZoom();
    light(lit);
    glideAll();
    fill(legend,
      h("span", null, svg("svg", { viewBox: "0 0 30 12" }, svg("path", { d: "M2 6h24", stroke: "var(--ink-3)", "stroke-width": 5, "stroke-opacity": 0.5, "stroke-linecap": "round" })), W.thickness),
      h("span", null, svg("svg", { viewBox: "0 0 30 12" }, svg("path", { d: "M0 6h12", stroke: "var(--ink-3)", "stroke-width": 4, "stroke-opacity": 0.5 }), svg("path", { d: "M12 6h16", stroke: "var(--bad)", "stroke-width": 4, "stroke-dasharray": "4 2.5" })), W.red),
      h("span", null, svg("svg", { viewBox: "0 0 30 12" }, svg("circle", { cx: 8, cy: 6, r: 4.5, fill: "var(--ink-2)" }), svg("circle", { cx: 22, cy: 6, r: 4, fill: "none", stroke: "var(--control)", "stroke-width": 2 })), W.dots),
      total > names.length && h("span", null, W.quieter(total - names.length)), left > 0 && h("span", null, W.lighter(number(left), number(least))));
    renew(links, names.map((name) => h("li", { data: { key: name } }, h("a", { href: `/ui/map?a=${encodeURIComponent(name)}`, data: { agent: name }, "aria-current": name === view.chosen ? "true" : null, on: { focus: () => light(name), blur: () => light(""), click: (event) => { event.preventDefault(); event.stopPropagation(); choose(name); } } }, W.node(name, say.presence[presence(store.agents.get(name))], number(busy.get(name)))))));
  }

  /** Lights one agent, its edges and its partners; the rest fades. */
  function light(name) {
    lit = name;
    if (!picture) return;
    const centre = name || view.chosen;
    const near = new Set();
    const front = [];
    for (const { g, pair, hot, label } of picture.groups) {
      const mine = centre && (pair.from === centre || pair.to === centre);
      if (mine) { near.add(pair.from); near.add(pair.to); front.push(g); }
      g.setAttribute("class", centre && !mine ? "faint" : picture.f.dense && !centre ? "faint" : "");
      for (const path of g.querySelectorAll(".e:not(.f), .tip:not(.f)")) path.classList.toggle("hot", Boolean(mine || (hot && !centre)));
      if (label) label.style.display = mine || (!centre && !picture.f.dense && picture.groups.length <= 12) ? "" : "none";
      if (!mine && g.parentNode !== picture.back) picture.back.append(g);
    }
    picture.front.append(...front);
    for (const [other, { dot, halo, text }] of picture.nodes) {
      const sel = other === centre;
      dot.classList.toggle("sel", sel);
      halo.style.display = sel && !name ? "" : "none";
      text.classList.toggle("sel", sel);
      text.classList.toggle("near", near.has(other));
      text.classList.toggle("far", Boolean(centre) && !near.has(other) && !sel);
      text.style.display = picture.f.narrow && !sel && !near.has(other) ? "none" : "";
    }
  }

  function zoomer() {
    const by = (factor) => () => { view.zoom = Math.min(6, Math.max(1, view.zoom * factor)); applyZoom(); };
    return h("div", { class: "zoom" }, h("button", { class: "btn tiny", "aria-label": W.nearer, on: { click: by(1.5) } }, "+"), h("button", { class: "btn tiny", "aria-label": W.farther, on: { click: by(1 / 1.5) } }, "–"));
  }

  function applyZoom() {
    if (!picture) return;
    const { f } = picture, w = f.w / view.zoom, tall = f.h / view.zoom;
    view.x = Math.min(f.w - w, Math.max(0, view.x || (f.w - w) / 2));
    view.y = Math.min(f.h - tall, Math.max(0, view.y || (f.h - tall) / 2));
    if (view.zoom === 1) view.x = view.y = 0;
    picture.el.setAttribute("viewBox", `${view.x.toFixed(1)} ${view.y.toFixed(1)} ${w.toFixed(1)} ${tall.toFixed(1)}`);
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { if (view.zoom > 1 && !event.target.closest("a, button")) drag = { x: event.clientX, y: event.clientY, vx: view.x, vy: view.y }; });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const scale = picture.f.w / view.zoom / canvas.clientWidth;
    view.x = Math.max(0.01, drag.vx - (event.clientX - drag.x) * scale);
    view.y = Math.max(0.01, drag.vy - (event.clientY - drag.y) * scale);
    applyZoom();
  });
  for (const over of ["pointerup", "pointerleave"]) canvas.addEventListener(over, () => { drag = null; });
  links.addEventListener("keydown", (event) => {
    if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    typed = (event.timeStamp - typedAt > 1500 ? "" : typed) + event.key.toLowerCase();
    typedAt = event.timeStamp;
    [...links.querySelectorAll("a")].find((a) => a.dataset.agent.toLowerCase().startsWith(typed))?.focus();
  });

  // The same in words

  const between = (pair) => `/ui?agent=${encodeURIComponent(pair.from)}&with=${encodeURIComponent(pair.to)}&role=asker&from=${FROM[view.range]}`;

  function table(pairs) {
    const sorted = [...pairs].sort((a, b) => b.asks - a.asks);
    picture = null;
    renew(links);
    fill(legend);
    const few = view.all ? sorted : sorted.slice(0, MANY);
    renew(canvas, sorted.length ? h("table", { class: "table" },
      h("thead", null, h("tr", null, ["asker", "target", "asks", "failed", "median"].map((key, i) => h("th", { class: i > 1 ? "n" : null }, h("button", { disabled: true }, W.heads[key]))))),
      h("tbody", null, few.map((pair) => h("tr", null, h("td", null, linked(pair.from, store.agents.get(pair.from))), h("td", null, linked(pair.to, store.agents.get(pair.to))), h("td", { class: "n" }, h("a", { href: between(pair) }, number(pair.asks))), h("td", { class: `n${share(pair) >= 0.05 ? " badn" : ""}` }, brief(share(pair))), h("td", { class: "n" }, pair.median === null ? say.unknown : about(pair.median)))))) : nobody(),
      few.length < sorted.length && h("p", { class: "tail-row" }, h("button", { class: "btn", on: { click: () => { view.all = true; draw(); } } }, W.all(number(sorted.length)))));
  }

  const nobody = () => h("div", { class: "none" }, h("p", { class: "sub" }, W.nobody(W.last[view.range])));

  function side(pairs) {
    const name = view.chosen, agent = store.agents.get(name);
    const mine = pairs.filter((pair) => pair.from === name || pair.to === name);
    const of = (pair) => (name ? [icon(pair.from === name ? "to" : "back"), h("span", { class: "sr" }, pair.from === name ? say.spoken.asked : say.spoken.wasAskedBy), named(pair.from === name ? pair.to : pair.from)] : [named(pair.from), icon("to"), named(pair.to)]);
    const sorted = (name ? mine : pairs).sort((a, b) => (name ? (b.from === name) - (a.from === name) : 0) || b.asks - a.asks);
    const lines = sorted.slice(0, name ? 400 : 15).map((pair) => h("li", null, h("a", { href: between(pair) }, h("p", null, of(pair)), h("span", { class: "n" }, number(pair.asks)), h("span", { class: `n${share(pair) >= 0.05 ? " badn" : ""}` }, brief(share(pair))), h("span", { class: "n" }, pair.median === null ? say.unknown : about(pair.median)))));
    const heads = h("div", { class: "hd" }, h("span", null, W.heads.pair), ["asks", "failed", "median"].map((key) => h("span", { class: "n" }, W.heads[key])));
    if (!name) {
      renew(rail, h("section", { class: "panel pairs", "aria-label": W.busiest }, h("header", null, h("h2", null, W.busiest)), lines.length ? [heads, h("ul", null, lines)] : nobody()));
      return;
    }
    const sumOf = (list) => list.reduce((n, pair) => n + pair.asks, 0);
    const asked = sumOf(mine.filter((pair) => pair.from === name)), was = sumOf(mine.filter((pair) => pair.to === name));
    const ended = mine.reduce((n, pair) => n + pair.asks - pair.open, 0), failed = mine.reduce((n, pair) => n + pair.failed, 0);
    const figure = (label, value, more) => h("div", null, h("dt", null, label), h("dd", null, h("a", { href: `/ui?agent=${encodeURIComponent(name)}${more}&from=${FROM[view.range]}` }, value)));
    const timed = mine.filter((pair) => pair.median !== null).sort((a, b) => a.median - b.median);
    const half = sumOf(timed) / 2;
    let run = 0;
    const median = timed.find((pair) => (run += pair.asks) >= half)?.median;
    renew(rail, h("section", { class: "panel pairs", "aria-label": name },
      h("header", null, h("a", { class: "who", href: `/ui/agents?a=${encodeURIComponent(name)}` }, square(name, agent), bdi(short(name))), h("button", { class: "icon push", "aria-label": W.clear, on: { click: () => choose(name) } }, icon("x"))),
      h("dl", { class: "figs" }, figure(W.askedOthers, number(asked), "&role=asker"), figure(W.wasAsked, number(was), "&role=target"), figure(W.heads.failed, ended ? percent(failed / ended) : say.unknown, "&status=unanswered"), figure(W.heads.median, median === undefined ? say.unknown : about(median), "&status=answered")),
      lines.length ? [heads, h("ul", null, lines)] : agent ? nobody() : h("div", { class: "none" }, h("p", { class: "sub" }, say.refused.unknownAgent(named(name))))),
      asked + was ? h("a", { class: "more", href: `/ui?agent=${encodeURIComponent(name)}&from=${FROM[view.range]}` }, W.show(number(asked + was), name)) : "");
  }

  const stop = [on("agents", refresh), on("state", refresh)];
  narrow.addEventListener("change", draw);
  load();
  return {
    el, title: say.views.map, tab: "map", first: asTable,
    tick() { if (Date.now() > due && !document.hidden && !drag) load(); },
    close() { closed = true; narrow.removeEventListener("change", draw); for (const end of stop) end(); },
  };
}
