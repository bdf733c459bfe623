// Keeps the store up to date: a stream of events; after three failed tries, polling.

import { ask, on, refresh, setHow, store, take, takeAgents, takeBeats, takeStore, tell, trim } from "./store.js";
import { setClock } from "./time.js";

// A stream speaks at once, then every ten seconds.
const EVERY = 3000, TRIES = 3, FIRST = 8000, STALE = 25000;
let source = null, timer = 0, failed = 0, heard = 0, opened = 0, fetching = null, seen = "";

export function start() {
  document.addEventListener("visibilitychange", () => { if (!document.hidden && Date.now() - heard > STALE) again(); });
  window.addEventListener("online", again);
  window.addEventListener("offline", trouble);
  on("tick", () => { if (store.how === "live" ? Date.now() - heard > STALE : dumb()) trouble(); });
  listen();
  return whole();
}

/** Whether the stream was opened and says nothing: something between holds it back. */
const dumb = () => store.how === "retry" && source.readyState !== EventSource.CLOSED && heard < opened && Date.now() - opened > FIRST;

/** Tries at once, whatever the plan was. */
export function again() {
  clearTimeout(timer);
  failed = 0;
  listen();
  return whole();
}

/** Fetches the state; many calls at once make one request. */
function whole() {
  fetching ??= refresh().finally(() => { fetching = null; });
  return fetching.catch(() => null);
}

function listen() {
  source?.close();
  opened = Date.now();
  source = new EventSource(`/ui/api/events${seen ? `?after=${encodeURIComponent(seen)}` : ""}`);
  source.addEventListener("hello", (event) => {
    // A new stream from here on: what happened before it began is fetched (one that goes on tells what was missed).
    const first = !seen;
    seen = event.lastEventId;
    well();
    if (!first || !store.ready) whole();
  });
  source.addEventListener("news", (event) => { seen = event.lastEventId; well(); news(JSON.parse(event.data)); });
  source.addEventListener("alive", well);
  source.addEventListener("gap", () => { well(); whole().then(() => tell("gap")); });
  source.addEventListener("bye", () => { store.restarting = true; trouble(); });
  source.addEventListener("error", trouble);
}

function well() {
  heard = Date.now();
  failed = 0;
  clearTimeout(timer);
  store.restarting = false;
  if (store.how !== "live") { setHow("live"); whole(); }
}

function trouble() {
  source.close();
  failed += 1;
  clearTimeout(timer);
  timer = setTimeout(failed >= TRIES ? poll : retry, EVERY);
  store.nextTry = Date.now() + EVERY;
  setHow("retry");
}

async function retry() {
  // A session that has ended answers 401 here and leads to the sign-in page.
  await ask("/ui/api/state?cut=1").then(() => listen(), trouble);
}

async function poll() {
  try {
    await refresh();
    setHow("poll");
    store.restarting = false;
    failed += 1;
    if (failed % 5 === 0) listen();
  } catch {
    setHow("retry");
  }
  clearTimeout(timer);
  store.nextTry = Date.now() + EVERY;
  timer = setTimeout(poll, EVERY);
}

// News are applied once a frame, however many come.
let waiting = [], frame = 0;

function news(event) {
  waiting.push(event);
  if (!frame) frame = document.hidden ? setTimeout(apply, 50) : requestAnimationFrame(apply);
}

function apply() {
  const events = waiting;
  waiting = [];
  frame = 0;
  const changed = new Set();
  for (const event of events) {
    setClock(event.now);
    store.asOf = event.now;
    store.open = event.open;
    if (event.agents) takeAgents(event.agents);
    if (event.store) takeStore(event.store);
    for (const rid of take(event.rows ?? [])) changed.add(rid);
    for (const rid of takeBeats(event.beats ?? [])) changed.add(rid);
  }
  if (changed.size) tell("rows", [...changed]);
  trim();
}
