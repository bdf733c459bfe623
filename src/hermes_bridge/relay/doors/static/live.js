// Keeps the store up to date: polling.

import { refresh, setHow, store } from "./store.js";

const EVERY = 3000;
let timer = 0;

export function start() {
  document.addEventListener("visibilitychange", () => { if (!document.hidden) again(); });
  window.addEventListener("online", again);
  return poll();
}

/** Tries at once, whatever the plan was. */
export function again() {
  clearTimeout(timer);
  return poll();
}

async function poll() {
  try {
    await refresh();
    if (store.how !== "live") setHow("live");
  } catch {
    store.nextTry = Date.now() + EVERY;
    setHow("retry");
  }
  clearTimeout(timer);
  timer = setTimeout(poll, EVERY);
}
