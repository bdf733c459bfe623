// Times as people read them. All instants are unix milliseconds of the relay's clock.

import { say } from "./words.js";

const U = say.unit;
let offset = 0;
export const setClock = (relayNow) => { offset = relayNow - Date.now(); };
export const now = () => Date.now() + offset;

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const zoneName = zone;
const f = (options) => new Intl.DateTimeFormat("en-GB", options);
const HMS = f({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const HM = f({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = f({ weekday: "long", day: "numeric", month: "long" });
const DAY_YEAR = f({ weekday: "long", day: "numeric", month: "long", year: "numeric" });
const SHORT = f({ day: "numeric", month: "short" });
const STAMP = f({ day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });

export const hms = (ms) => HMS.format(ms);
export const hm = (ms) => HM.format(ms);
export const stamp = (ms) => STAMP.format(ms);
export const iso = (ms) => new Date(ms).toISOString();
export const title = (ms) => `${stamp(ms)}, ${zone}`;
export const dayKey = (ms) => { const d = new Date(ms); return d.getFullYear() * 10000 + (d.getMonth() + 1) * 100 + d.getDate(); };
export const midnight = (ms, days = 0) => { const d = new Date(ms); return new Date(d.getFullYear(), d.getMonth(), d.getDate() + days).getTime(); };

/** ["Today", "Tuesday 24 March"], ["Yesterday", ...], or ["Tuesday 24 March", ""]. */
export function day(ms) {
  const today = now(), key = dayKey(ms);
  const date = (new Date(ms).getFullYear() === new Date(today).getFullYear() ? DAY : DAY_YEAR).format(ms).replace(",", "");
  if (key === dayKey(today)) return [say.day.today, date];
  if (key === dayKey(midnight(today, -1))) return [say.day.yesterday, date];
  return [date, ""];
}

/** 14:31 today, else 23 Mar 14:31. */
export const when = (ms) => (dayKey(ms) === dayKey(now()) ? hm(ms) : `${SHORT.format(ms)} ${hm(ms)}`);

const two = (n) => String(n).padStart(2, "0");

/** A running timer: 0:48, 6:14, 3:02:40, 2 d 4 h. */
export function timer(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s >= 86400) return U.days(Math.floor(s / 86400), Math.floor((s % 86400) / 3600));
  const m = Math.floor(s / 60), hours = Math.floor(m / 60);
  return hours ? `${hours}:${two(m % 60)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

/** A duration: 310 ms, 3.1 s, 48.2 s, 2:04, 1:02:40. */
export function took(ms) {
  if (ms < 1000) return U.ms(Math.max(0, Math.round(ms)));
  return ms < 60000 ? U.s((Math.floor(ms / 100) / 10).toFixed(1)) : timer(ms);
}

/** The same in figures that stand for many: 310 ms, 8.4 s, 51 s, 2:04. */
export const about = (ms) => (ms >= 10000 && ms < 60000 ? U.s(Math.round(ms / 1000)) : took(ms));

/** An age in one unit: 8 s, 51 min, 3 h, 6 d. */
export function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return U.s(s);
  if (s < 5400) return U.min(Math.round(s / 60));
  return s < 129600 ? U.h(Math.round(s / 3600)) : U.d(Math.round(s / 86400));
}

/** A limit in round words: 120 s, 30 min, 1 h. */
export function span(ms) {
  if (ms % 3600000 === 0) return U.h(ms / 3600000);
  if (ms > 180000 && ms % 60000 === 0) return U.min(ms / 60000);
  return ms % 1000 === 0 ? U.s(ms / 1000) : took(ms);
}

/** A time that is told in seconds: 310 ms, 4 s, 97 s, 2:04. */
export const inSeconds = (ms) => (ms < 1000 || ms >= 120000 ? took(ms) : U.s(Math.round(ms / 1000)));

export function size(bytes) {
  if (bytes < 1000) return U.bytes(bytes);
  return bytes < 1000000 ? U.kilo(Math.round(bytes / 1000)) : U.mega((bytes / 1000000).toFixed(1));
}

/** In words for a screen reader: "97 seconds", "2 minutes 4 seconds"; with so many decimals "48.2 seconds". */
export function spoken(ms, decimals = ms < 10000 ? 1 : 0) {
  if (ms < 120000) return say.spoken.seconds(Number((Math.floor(ms / 100) / 10).toFixed(decimals)));
  const m = Math.floor(ms / 60000), s = Math.round((ms % 60000) / 1000);
  return say.spoken.minutes(m) + (s ? ` ${say.spoken.seconds(s)}` : "");
}
