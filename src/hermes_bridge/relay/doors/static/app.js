// The frame: bar, views by address, search, theme, keys, banners.

import { confirmCancel, showKeys, toast } from "./dialogs.js";
import { decoded, h, icon } from "./dom.js";
import { dots, exchanges } from "./exchanges.js";
import { again, start } from "./live.js";
import { riskiest, risks } from "./rail.js";
import { copy, exchangeLink } from "./row.js";
import { change, on, store, tell } from "./store.js";
import { hms, now, when } from "./time.js";
import { say } from "./words.js";

const main = document.getElementById("main");
const polite = document.getElementById("polite"), alarm = document.getElementById("urgent");
const banners = document.getElementById("banners");
const kept = (key) => { try { return localStorage.getItem(`hermes-bridge.${key}`); } catch { return null; } };
const keep = (key, value) => { try { value === null ? localStorage.removeItem(`hermes-bridge.${key}`) : localStorage.setItem(`hermes-bridge.${key}`, value); } catch { /* storage is off */ } };

// Where each entry of the history was scrolled to, for Back and Forward.
const places = new Map();
let entry = history.state?.entry ?? 0, last = entry;

let view = null, asleep = null, heldBack = 0, announcing = 0, typing = 0;

const app = {
  replace(path, query) {
    const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
    history.replaceState(history.state, "", `${path}${text ? `?${text}` : ""}${location.hash}`);
    if (view) view.key = key();
  },
  /** What stands in the search box; a search that was about to run has run by this. */
  searched() {
    clearTimeout(typing);
    return find.value.trim();
  },
  clearSearch() { find.value = ""; },
  go(path) {
    places.set(entry, scrollY);
    entry = last += 1;
    history.pushState({ entry }, "", path);
    show();
  },
  announce(n) {
    heldBack += n;
    announcing ||= setTimeout(() => { polite.textContent = say.spoken.news(heldBack); heldBack = announcing = 0; }, 10000);
  },
  cancel: confirmCancel,
};

// Views by address

const key = () => location.pathname.replace(/\/$/, "") + location.search;

const LAZY = { agents: () => import("./agents.js"), conversation: () => import("./conversation.js"), map: () => import("./map.js"), connector: () => import("./connector.js") };
const loaded = {};

/** A view whose module comes when it is first needed (and, in a quiet moment, before). */
function lazy(name, ...args) {
  if (loaded[name]) return loaded[name](...args);
  const here = key();
  LAZY[name]().then((module) => { loaded[name] = module[name]; if (key() === here) show(); }, () => { wait.textContent = say.trouble.reload; });
  const wait = h("p", { class: "none dim" }, say.wait);
  return { title: say.views[name], tab: name, el: h("div", { class: "page" }, wait) };
}

function choose(query) {
  const path = location.pathname.replace(/\/$/, "");
  if (path === "/ui") return exchanges(query, app);
  if (path.startsWith("/ui/c/")) return lazy("conversation", decoded(path.slice(6)), app);
  if (path === "/ui/agents") return lazy("agents", query, app);
  if (path === "/ui/map") return lazy("map", query, app);
  if (path === "/ui/connector") return lazy("connector", query, app);
  return { title: say.nowhere.title, el: h("div", { class: "page" }, h("section", { class: "panel none" }, dots(), h("h2", null, say.nowhere.head), h("p", { class: "sub" }, say.nowhere.text), h("p", { class: "two" }, h("a", { class: "btn", href: "/ui" }, say.views.exchanges)))) };
}

function show({ back = false } = {}) {
  // Exchanges sleeps while another view is open, so that Back finds its rows and its place again.
  const again_ = asleep?.key === key() && (back || view?.tab !== "exchanges") ? asleep : null;
  if (again_) asleep = null;
  if (view?.tab === "exchanges") {
    asleep?.close();
    asleep = view;
    view.sleep();
  } else view?.close?.();
  const query = new URLSearchParams(location.search);
  view = again_ ?? choose(query);
  view.key = key();
  find.value = query.get("q") ?? "";
  document.title = say.title(view.title);
  for (const tab of tabs) tab.dataset.tab === (view.under ?? view.tab ?? "none") ? tab.setAttribute("aria-current", "page") : tab.removeAttribute("aria-current");
  main.replaceChildren(view.el);
  scrollTo({ top: 0 });
  view.shown?.(Boolean(again_));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || link.target) return;
  const url = new URL(link.href.baseVal ?? link.href, location.href);
  if (url.origin !== location.origin || !/^\/ui(\/|$)/.test(url.pathname) || url.pathname.startsWith("/ui/log")) return;
  if (url.pathname === location.pathname && url.search === location.search && url.hash) return;
  event.preventDefault();
  app.go(url.pathname + url.search + url.hash);
});
window.addEventListener("popstate", (event) => {
  places.set(entry, scrollY);
  entry = event.state?.entry ?? 0;
  if (view?.key === key()) { view.shown?.(); return; }
  show({ back: true });
  backTo(places.get(entry) ?? 0);
});
history.scrollRestoration = "manual";

/** Scrolls to where it was as soon as the view is long enough; gives up when somebody acts. */
function backTo(place) {
  if (!place || view === null || Math.abs(scrollY - place) < 3) return;
  const quit = new AbortController(), mine = view, until = Date.now() + 5000;
  for (const act of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(act, () => quit.abort(), { once: true, passive: true, signal: quit.signal });
  const step = () => {
    if (quit.signal.aborted || view.el !== mine.el && view.tab !== mine.tab || Date.now() > until) { quit.abort(); return; }
    scrollTo({ top: place });
    if (Math.abs(scrollY - place) < 3) quit.abort(); else setTimeout(step, 50);
  };
  step();
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });

// The bar

const live = h("p", { class: "live", data: { how: "live" } }, h("span", null, say.bar.how.live));
const find = h("input", { type: "search", placeholder: say.bar.search, "aria-label": say.bar.search, maxlength: 200, autocomplete: "off", spellcheck: "false" });
const leave = h("button", { class: "icon", "aria-label": say.bar.logOut, title: say.bar.logOut, hidden: !kept("signed"), on: { click: async () => {
  await change("/ui/logout").catch(() => null);
  location.assign("/ui/login");
} } }, icon("exit"));

const THEMES = ["system", "light", "dark"];
const themeNow = () => document.documentElement.dataset.theme ?? "system";
const theme = h("button", { class: "icon", on: { click: nextTheme } });
function nextTheme() {
  const next = THEMES[(THEMES.indexOf(themeNow()) + 1) % 3];
  if (next === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
  keep("theme", next === "system" ? null : next);
  labelTheme();
}
function labelTheme() {
  theme.title = say.bar.theme(themeNow());
  theme.setAttribute("aria-label", theme.title);
  theme.replaceChildren(icon({ system: "half", light: "sun", dark: "moon" }[themeNow()]));
}
labelTheme();

const count = h("span", { class: "count" });
const tabs = [["exchanges", "/ui", "list"], ["agents", "/ui/agents", "bots", count], ["map", "/ui/map", "net"], ["connector", "/ui/connector", "plug"]].map(([name, href, shape, more]) => h("a", { href, data: { tab: name } }, icon(shape), say.views[name], more));
tabs[3].hidden = !kept("connector");
const bar = document.querySelector(".bar");
bar.append(h("div", null,
  h("a", { class: "brand", href: "/ui" }, icon("mark"), h("span", null, say.product)),
  h("nav", { class: "tabs", "aria-label": say.views.nav }, tabs),
  h("div", { class: "find", role: "search" }, icon("find"), find, h("kbd", { "aria-hidden": "true" }, "/")), live,
  h("div", { class: "icons" }, h("button", { class: "icon phone", "aria-label": say.bar.toSearch, on: { click: toSearch } }, icon("find")), theme, leave)));

function toSearch() { bar.classList.add("finding"); find.focus(); find.select(); }
function searchNow() {
  clearTimeout(typing);
  if (view.search) view.search();
  else if (find.value.trim()) app.go(`/ui?q=${encodeURIComponent(find.value.trim())}`);
}
find.addEventListener("blur", () => bar.classList.remove("finding"));
find.addEventListener("input", () => { clearTimeout(typing); if (view.search) typing = setTimeout(searchNow, 250); });
find.addEventListener("keydown", (event) => {
  if (event.key === "Enter") searchNow();
  if (event.key === "Escape") { event.preventDefault(); if (find.value) { find.value = ""; searchNow(); } else find.blur(); }
});

// Keys

let letters = kept("letters") !== "off", wentG = 0;
/** The exchange that the keys act on: the row with the focus, or the one in view. */
const inHand = () => view.feed?.current?.row ?? view.inHand?.() ?? null;
const ACTIONS = {
  "/": toSearch, t: nextTheme,
  "?": () => showKeys(letters, (on_) => { letters = on_; keep("letters", on_ ? null : "off"); }),
  j: () => (view.feed ?? view).move?.(1), k: () => (view.feed ?? view).move?.(-1),
  x: () => fold(), " ": () => fold(),
  Enter: () => open(), o: () => open(),
  c: () => { const row = inHand(); if (row) copy(new URL(exchangeLink(row), location.href).href, polite, say.row.linkCopied).then(() => toast("ok", say.row.linkCopied)); },
  f: () => view.first?.focus(), n: () => { const pill = (view.feed ?? view).pill; if (pill && !pill.hidden) pill.click(); },
  C: () => { const row = inHand(); if (row && !row.ended_at && store.canCancel) confirmCancel(row); },
  ".": () => { const row = riskiest(); if (row) app.go(exchangeLink(row)); },
  Escape: () => {
    if (view.feed?.current) document.activeElement.blur();
    else if (find.value && view.search) { find.value = ""; searchNow(); } else if (view.tab !== "exchanges" && asleep) history.back();
  },
};
const fold = () => { const row = view.feed?.current; if (row) view.feed.toggle(row.rid); };
const open = () => { const row = view.feed?.current?.row; if (row) app.go(exchangeLink(row)); };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog, [popover]")) return;
  const pressed = event.key;
  if (pressed.length === 1 && !letters && !["?", "/"].includes(pressed)) return;
  if (wentG && Date.now() - wentG < 1500) {
    const path = { e: "/ui", a: "/ui/agents", m: "/ui/map" }[pressed];
    wentG = 0;
    if (path) { event.preventDefault(); app.go(path); return; }
  }
  if (pressed === "g") { wentG = Date.now(); return; }
  const action = ACTIONS[pressed];
  if (!action || (["Enter", " "].includes(pressed) && event.target !== view.feed?.current?.el)) return;
  event.preventDefault();
  action();
});

// Trouble

let lostBefore = null, lostNote = "";
function trouble() {
  const lines = [];
  // Before the first try has failed nothing is lost yet.
  const how = store.how === "retry" && !store.nextTry ? "live" : store.how;
  live.dataset.how = how;
  live.firstChild.textContent = say.bar.how[how];
  if (how === "retry" && store.ready) {
    const wait = Math.max(0, Math.ceil((store.nextTry - Date.now()) / 1000));
    lines.push(["cut", store.restarting ? say.trouble.restarting : say.trouble.lost, say.trouble.asOf(hms(store.asOf), wait), h("button", { class: "btn tiny push", on: { click: again } }, say.trouble.tryNow)]);
  }
  if (store.store && !store.store.up) {
    const oldest = Math.min(...[...store.rows.values()].map((row) => row.started_at));
    lines.push(["timeout", say.trouble.store, say.trouble.goesOn(Number.isFinite(oldest) && when(oldest))]);
  } else if (lostNote) lines.push(["timeout", lostNote, ""]);
  const said = lines.map(([, bold, text]) => bold + text).join("\n");
  if (banners.dataset.said === said) return;
  banners.dataset.said = said;
  banners.replaceChildren(...lines.map(([shape, bold, text, button]) => h("div", { class: `banner${button ? "" : " plain"}` }, icon(shape), h("p", null, h("b", null, bold), text), button)));
}
on("how", trouble);
on("store", () => {
  const lost = store.store.lost;
  if (lostBefore !== null && lost > lostBefore) lostNote = say.trouble.notStored(lost - lostBefore);
  if (store.store.up) lostBefore ??= lost;
  trouble();
});
on("state", () => {
  // Remembered, so that the bar stands at once as it did last time.
  keep("signed", store.signedIn ? "yes" : null);
  keep("connector", store.connector ? "yes" : null);
  leave.hidden = !store.signedIn;
  tabs[3].hidden = !store.connector;
});
on("agents", () => { count.textContent = String(store.agents.size); });

// The one timer of the page.
setInterval(() => {
  tell("tick");
  if (document.hidden) return;
  view?.tick?.(now());
  const risky = risks(now());
  if (risky) alarm.textContent = risky;
  if (store.how !== "live") trouble();
}, 1000);

show();
start();
(window.requestIdleCallback ?? setTimeout)(async () => {
  try { for (const name of Object.keys(LAZY).filter((one) => one !== "connector")) loaded[name] ??= (await LAZY[name]())[name]; } catch { /* it is tried again when it is needed */ }
});
