// What the page knows of the relay, and how it stays up to date. Views subscribe; nothing here draws.

import { setClock } from "./time.js";
import { say } from "./words.js";

export const CUT = 4000;
/** How many exchanges a state holds: at the first look what the screen shows, later what changed since. */
const FIRST = 50, MISSED = 200, OVERLAP = 5000;

export const store = {
  rows: new Map(), agents: new Map(), limits: {}, how: "retry",
  asOf: 0, nextTry: 0, csrf: "", signedIn: false, canCancel: false, store: null, open: 0, restarting: false, ready: false,
};

const listeners = new Map();

/** Calls `listener` on "rows" (with the ids that changed), "agents", "how", "store"; returns how to stop. */
export function on(what, listener) {
  if (!listeners.has(what)) listeners.set(what, new Set());
  listeners.get(what).add(listener);
  return () => listeners.get(what).delete(listener);
}

export const tell = (what, detail) => { for (const listener of listeners.get(what) ?? []) listener(detail); };

/** Fetches JSON of the relay; a session that has ended leads to the sign-in page. Errors hold words for people. */
export async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { accept: "application/json", ...options.headers } }).catch(() => { throw new Error(say.trouble.silent); });
  if (response.status === 401) {
    location.assign(`/ui/login?next=${encodeURIComponent(location.pathname + location.search)}${store.ready ? "&ended=1" : ""}`);
    throw new Error("401");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(body.error ?? say.trouble.status(response.status)), { status: response.status, hint: body.hint });
  return body;
}

export const change = (path) => ask(path, { method: "POST", headers: { "x-csrf-token": store.csrf } });

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Takes rows in; gives the ids of those that are new or differ. */
export function take(rows) {
  const changed = [];
  for (const row of rows) {
    const known = store.rows.get(row.request_id);
    if (known && (known.ended_at && !row.ended_at || same(known, row))) continue;
    store.rows.set(row.request_id, row);
    changed.push(row.request_id);
  }
  return changed;
}

export function takeAgents(agents) {
  if (same([...store.agents.values()], agents)) return;
  store.agents = new Map(agents.map((agent) => [agent.name, agent]));
  tell("agents");
}

export function setHow(how) {
  store.how = how;
  tell("how");
}

const MOST = 20000, KEEP = 5000;

/** Forgets old ended rows that no view shows: a page may stay open for weeks. */
export function trim() {
  if (store.rows.size < MOST) return;
  const kept = new Set();
  tell("keep", kept);
  const old = [...store.rows.values()].filter((row) => row.ended_at && !kept.has(row.request_id)).sort((a, b) => a.started_at - b.started_at);
  for (const row of old.slice(0, Math.max(0, old.length - KEEP))) store.rows.delete(row.request_id);
}

/** Takes heartbeats: small changes of rows that are known. */
export function takeBeats(beats) {
  const changed = [];
  for (const beat of beats) {
    const row = store.rows.get(beat.request_id);
    if (!row || row.ended_at) continue;
    const times = beat.heard_at > (row.beat_times?.at(-1) ?? 0) ? [...(row.beat_times ?? []), beat.heard_at].slice(-128) : row.beat_times;
    store.rows.set(beat.request_id, { ...row, ...beat, beat_times: times });
    changed.push(beat.request_id);
  }
  return changed;
}

export function takeStore(state) {
  const before = store.store;
  store.store = state;
  if (!before || before.up !== state.up || before.lost !== state.lost) tell("store", before);
}

/** Reads the whole state: the newest exchanges, the open ones, the agents. */
export async function refresh() {
  const known = store.ready ? store.readAt - OVERLAP : 0;
  const state = await ask(`/ui/api/state?cut=${CUT}&rows=${known ? `${MISSED}&since=${known}` : FIRST}`);
  state.newest = !known && state.store.up;
  state.whole = state.newest && state.exchanges.length < FIRST;
  setClock(state.now);
  Object.assign(store, {
    readAt: state.now,
    asOf: state.now, limits: state.limits, csrf: state.csrf, signedIn: state.signed_in,
    canCancel: state.signed_in, traceUrl: state.trace_url ?? "", open: state.open, connector: state.connector ?? false, ready: true,
  });
  takeAgents(state.agents);
  takeStore(state.store);
  const stillOpen = new Set([...state.exchanges, ...state.open_exchanges].filter((row) => !row.ended_at).map((row) => row.request_id));
  const doubtful = state.open <= stillOpen.size ? [...store.rows.values()].filter((row) => !row.ended_at && !stillOpen.has(row.request_id)) : [];
  const changed = take([...state.exchanges, ...state.open_exchanges]);
  for (const row of doubtful.slice(0, 50)) changed.push(...take([await ask(`/ui/api/exchanges/${encodeURIComponent(row.request_id)}`).catch(() => row)]));
  tell("state", state);
  if (changed.length) tell("rows", changed);
  // As many as were asked for: there may be more between them and what is known.
  if (known && state.exchanges.length >= MISSED) tell("gap");
  return state;
}
