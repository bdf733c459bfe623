// The geometry of the map. Agents stand on a ring in the order of their names; every direction of a
// pair is a curve of its own, bent to the right of the way it goes. Pure: numbers in, numbers out.

export const FLAT = 40, DRAWN = 200, EDGES = 600;

/** The frame for so many agents: view box, centre, radii. */
export function frame(count, narrow) {
  if (narrow) return { w: 390, h: 380, cx: 195, cy: 190, rx: 138, ry: 138, dense: count > FLAT, narrow };
  if (count > FLAT) return { w: 846, h: 846, cx: 423, cy: 423, rx: 320, ry: 320, dense: true, narrow };
  return { w: 846, h: 600, cx: 423, cy: 300, rx: 290, ry: 232, dense: false, narrow };
}

/** Where agent number `i` of `n` stands: clockwise from the top. */
export function spot(f, i, n) {
  const angle = (i / n) * 2 * Math.PI - Math.PI / 2;
  return { x: f.cx + f.rx * Math.cos(angle), y: f.cy + f.ry * Math.sin(angle), angle };
}

/** Where a flat name of so many letters stands, outside the ring and inside the frame; how many letters fit. */
export function label(f, p, r, count) {
  const cos = Math.cos(p.angle), sin = Math.sin(p.angle), letter = 7.6;
  const beside = Math.abs(cos) < 0.15 ? 0 : Math.sign(cos);
  const x = p.x + cos * (r + 10), y = p.y + sin * (r + 10) + 4.5;
  const room = beside ? (beside > 0 ? f.w - x : x) - 2 : 2 * Math.min(p.x, f.w - p.x);
  if (beside && count * letter > room && f.narrow) {
    const most = 14, half = (Math.min(count, most) * letter) / 2;
    return { x: Math.min(f.w - half - 2, Math.max(half + 2, p.x)), y: p.y + (sin < -0.5 ? -r - 8 : r + 18), anchor: "middle", letters: most };
  }
  return { x: beside ? x : p.x, y: y + (beside ? 0 : sin > 0 ? 7 : -5), anchor: ["end", "middle", "start"][beside + 1], letters: Math.min(Math.floor(room / letter), f.narrow ? 14 : 32) };
}

export function radius(asks, most, dense) {
  const [low, high] = dense ? [1.6, 5] : [4, 11];
  return low + (high - low) * Math.sqrt(most ? asks / most : 0);
}

export const thickness = (asks, most, dense) => (dense ? 0.6 : 1) + (dense ? 2.4 : 6) * Math.sqrt(asks / most);

const mix = (a, b, t) => ({ x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t });

/** The part of a quadratic curve between two parameters. */
function part([a, c, b], from, to) {
  const cut = (p, t, first) => {
    const ac = mix(p[0], p[1], t), cb = mix(p[1], p[2], t), m = mix(ac, cb, t);
    return first ? [p[0], ac, m] : [m, cb, p[2]];
  };
  const head = cut([a, c, b], to, true);
  return from ? cut(head, from / to, false) : head;
}

const d = ([a, c, b]) => `M${a.x.toFixed(1)} ${a.y.toFixed(1)}Q${c.x.toFixed(1)} ${c.y.toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}`;

/** The curve from one agent to another: its path, the red rest of it, its arrow, its middle. */
export function curve(f, from, to, { width, share = 0, gapFrom, gapTo }) {
  const dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy) || 1;
  const pull = Math.min(0.85, 0.3 + 0.48 * (length / (f.rx + f.ry)));
  const bend = Math.min(42, 0.17 * length);
  const middle = mix(from, to, 0.5);
  const c = { x: middle.x + (f.cx - middle.x) * pull - (dy / length) * bend, y: middle.y + (f.cy - middle.y) * pull + (dx / length) * bend };
  const tip = f.dense ? 3 + width : 5 + width;
  const way = length * 1.15;
  const start = Math.min(0.4, gapFrom / way), end = Math.max(0.6, 1 - (gapTo + tip) / way);
  const split = share >= 0.05 ? end - (end - start) * share : end;
  const whole = [from, c, to];
  const body = part(whole, start, split), rest = share >= 0.05 ? part(whole, split, end) : null;
  const last = (rest ?? body)[2], before = (rest ?? body)[1];
  const tx = last.x - before.x, ty = last.y - before.y, t = Math.hypot(tx, ty) || 1;
  const ux = tx / t, uy = ty / t, half = tip * 0.62;
  const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return {
    body: split - start > 0.01 ? d(body) : null, rest: rest && d(rest), at: part(whole, start, (split + end) / 2)[2],
    tip: `M${point(last.x + ux * tip, last.y + uy * tip)}L${point(last.x - uy * half, last.y + ux * half)}L${point(last.x + uy * half, last.y - ux * half)}z`,
  };
}
