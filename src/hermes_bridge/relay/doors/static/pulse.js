// The pulse line. Open: now is a dot in the middle, left of it the last window with a tick a
// heartbeat, right of it the silence still allowed, up to a wall. Ended: its history, frozen.

import { arrange, svg } from "./dom.js";
import { atRisk, lostSince, silence, status } from "./status.js";
import { spoken } from "./time.js";
import { say } from "./words.js";

const W = say.pulse, MOST_TICKS = 24, still = matchMedia("(prefers-reduced-motion: reduce)");
const line = (kind, x1, x2, y1 = 8, y2 = 8) => svg("line", { class: kind, x1: `${x1.toFixed(2)}%`, x2: `${x2.toFixed(2)}%`, y1, y2 });
const dot = (kind, x, r) => svg("circle", { class: kind, cx: `${x.toFixed(2)}%`, cy: 8, r });

export const newPulse = () => svg("svg", { class: "pulse", role: "img" });

/** Draws an open ask as it stands at the instant `at`. */
export function drawOpen(el, row, at, { ticks = true } = {}) {
  const window = row.window_ms || 120000;
  const waits = row.status === "queued";
  const silent = silence(row, at);
  const left = Math.max(0, (row.deadline ?? at) - at);
  const risk = atRisk(row, at);
  const back = (age) => 50 - Math.min(1, age / window) * 49.5;
  const wall = 50 + Math.min(1, left / window) * 48.6;
  const beats = beatTimes(row).filter((t) => at - t < window).slice(-MOST_TICKS);
  const parts = [line("track", 0.5, 50)];
  if (!waits) {
    parts.push(line("gap", back(risk ? silent : at - (row.sent_at || row.started_at)), 50));
    if (ticks) for (const t of beats) parts.push(line("beat", back(at - t), back(at - t), 4, 12));
  }
  if (wall > 53) parts.push(line("run", 51.6, wall - 1));
  parts.push(line("wall", wall, wall, 3, 13), dot("now", 50, ticks ? 5 : 4));
  // One ring a heartbeat: it stays in place while it fades, whatever is drawn meanwhile.
  const last = beats.at(-1);
  if (last && at - last < 900 && !still.matches) {
    if (el.dataset.beat !== String(last)) el.ring = dot("ring", 50, 9);
    el.dataset.beat = String(last);
    parts.push(el.ring);
  }
  el.setAttribute("class", `pulse${risk ? " risk" : ""}${waits ? " wait" : ""}`);
  el.setAttribute("aria-label", waits ? W.queued : lostSince(row) ? W.lost(spoken(at - lostSince(row)), spoken(left)) : (row.deadline >= (row.cap_at ?? Infinity) ? W.capped : W.open)(spoken(silent), spoken(left)));
  arrange(el, parts);
}

/** Draws an ended exchange: asked, sent again, ticks, end, late answer. */
export function drawDone(el, row) {
  const start = row.started_at, end = row.ended_at, last = row.late_at || end;
  const x = (t) => 1 + (Math.max(0, t - start) / Math.max(1, last - start)) * 98;
  const tone = status(row).tone;
  const parts = [line("gap", 1, x(end))];
  const beats = beatTimes(row);
  const step = Math.max(1, Math.ceil(beats.length / MOST_TICKS));
  for (let i = 0; i < beats.length; i += step) parts.push(line("beat", x(beats[i]), x(beats[i]), 4, 12));
  parts.push(dot("pt", 1, 4));
  for (const t of row.resent ?? []) parts.push(dot("pt", x(t), 4));
  if (row.late_at) parts.push(line("run", Math.min(x(end) + 1.6, 98), 97.8), dot("pt late", 99, 4));
  parts.push(dot("end", x(end), 5));
  el.setAttribute("class", `pulse done s-${tone}`);
  const said = [];
  if (row.taken_at) said.push(W.taken(spoken(row.taken_at - start)));
  if (row.attempt > 1) said.push(W.sent(row.attempt));
  if (row.beats) said.push(W.beats(row.beats));
  said.push(W.ended(status(row).label.toLowerCase(), spoken(end - start)));
  if (row.late_at) said.push(W.late(spoken(row.late_at - end)));
  const text = said.join(", ");
  el.setAttribute("aria-label", `${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
  el.replaceChildren(...parts);
}

const beatTimes = (row) => row.beat_times ?? (row.beats && row.heard_at ? [row.heard_at] : []);
