// The frame: bar, views by address, search, theme, keys, banners.

import { confirmCancel, showKeys, toast } from "./dialogs.js";
import { h, icon } from "./dom.js";
import { dots, exchanges } from "./exchanges.js";
import { again, start } from "./live.js";
import { copy, exchangeLink } from "./row.js";
import { change, on, store } from "./store.js";
import { hms, now } from "./time.js";

const main = document.getElementById("main");
const polite = document.getElementById("polite"), alarm = document.getElementById("urgent");
const banners = document.getElementById("banners");
const kept = (key) => { try { return localStorage.getItem(`hermes-bridge.${key}`); } catch { return null; } };
const keep = (key, value) => { try { value === null ? localStorage.removeItem(`hermes-bridge.${key}`) : localStorage.setItem(`hermes-bridge.${key}`, value); } catch { /* storage is off */ } };

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
  go(path) { history.pushState(null, "", path); show(); },
  announce(n) {
    heldBack += n;
    announcing ||= setTimeout(() => { polite.textContent = `${heldBack} new exchange${heldBack === 1 ? "" : "s"}`; heldBack = announcing = 0; }, 10000);
  },
  urgent(text) { alarm.textContent = text; },
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
  LAZY[name]().then((module) => { loaded[name] = module[name]; if (key() === here) show(); }, () => { wait.textContent = "Could not load this. Load the page again."; });
  const wait = h("p", { class: "none dim" }, "…");
  return { title: "hermes-bridge", tab: name, el: h("div", { class: "page" }, wait) };
}

function choose(query) {
  const path = location.pathname.replace(/\/$/, "");
  if (path === "/ui") return exchanges(query, app);
  if (path.startsWith("/ui/c/")) return lazy("conversation", decodeURIComponent(path.slice(6)), app);
  if (path === "/ui/agents") return lazy("agents", query, app);
  if (path === "/ui/map") return lazy("map", query, app);
  if (path === "/ui/connector") return lazy("connector", query, app);
  return { title: "Nothing here", el: h("div", { class: "page" }, h("section", { class: "panel none" }, dots(), h("h2", null, "Nothing is here"), h("p", { class: "sub" }, "This address leads to no view."), h("p", { class: "two" }, h("a", { class: "btn", href: "/ui" }, "Exchanges")))) };
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
  document.title = `${view.title} · hermes-bridge`;
  for (const tab of tabs) tab.dataset.tab === (view.tab ?? "none") ? tab.setAttribute("aria-current", "page") : tab.removeAttribute("aria-current");
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
window.addEventListener("popstate", () => { if (view?.key !== key()) show({ back: true }); else view.shown?.(); });
history.scrollRestoration = "manual";

// The bar

const live = h("p", { class: "live", data: { how: "live" } }, h("span", null, "Live"));
const find = h("input", { type: "search", placeholder: "Search messages and answers", "aria-label": "Search messages and answers", maxlength: 200, autocomplete: "off", spellcheck: "false" });
const leave = h("button", { class: "icon", "aria-label": "Log out", title: "Log out", hidden: true, on: { click: async () => {
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
  theme.setAttribute("aria-label", `Theme: ${themeNow()}`);
  theme.title = `Theme: ${themeNow()}`;
  theme.replaceChildren(icon({ system: "half", light: "sun", dark: "moon" }[themeNow()]));
}
labelTheme();

const count = h("span", { class: "count" });
const tabs = [["exchanges", "/ui", "list", "Exchanges"], ["agents", "/ui/agents", "bots", "Agents", count], ["map", "/ui/map", "net", "Map"], ["connector", "/ui/connector", "plug", "Connector"]].map(([name, href, shape, ...text]) => h("a", { href, data: { tab: name } }, icon(shape), text));
tabs[3].hidden = true;
const bar = document.querySelector(".bar");
bar.append(h("div", null,
  h("a", { class: "brand", href: "/ui" }, icon("mark"), h("span", null, "hermes-bridge")),
  h("nav", { class: "tabs", "aria-label": "Views" }, tabs),
  h("div", { class: "find", role: "search" }, icon("find"), find, h("kbd", { "aria-hidden": "true" }, "/")), live,
  h("div", { class: "icons" }, h("button", { class: "icon phone", "aria-label": "Search", on: { click: toSearch } }, icon("find")), theme, leave)));

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
const ACTIONS = {
  "/": toSearch, t: nextTheme,
  "?": () => showKeys(letters, (on_) => { letters = on_; keep("letters", on_ ? null : "off"); }),
  j: () => view.feed?.move(1), k: () => view.feed?.move(-1),
  x: () => fold(), " ": () => fold(),
  Enter: () => open(), o: () => open(),
  c: () => { const row = view.feed?.current?.row; if (row) copy(new URL(exchangeLink(row), location.href).href, polite, "Link copied").then(() => toast("ok", "Link copied")); },
  f: () => view.first?.focus(), n: () => { if (!view.feed?.pill.hidden) view.feed?.showNew(); },
  C: () => { const row = view.feed?.current?.row; if (row && !row.ended_at && store.canCancel) confirmCancel(row); },
  ".": () => { const row = view.riskiest?.(); if (row) app.go(exchangeLink(row)); },
  Escape: () => { if (view.tab !== "exchanges" && asleep) history.back(); else if (view.feed?.current) document.activeElement.blur(); },
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
  live.dataset.how = store.how;
  live.firstChild.textContent = { live: "Live", retry: "Reconnecting", poll: "Polling every 3 s" }[store.how];
  if (store.how === "retry" && store.ready) {
    const wait = Math.max(0, Math.ceil((store.nextTry - Date.now()) / 1000));
    lines.push([store.restarting ? "cut" : "cut", store.restarting ? "The relay is restarting." : "Connection to the relay lost.", ` Shown as of ${hms(store.asOf)}. Next try in ${wait} s.`, h("button", { class: "btn tiny push", on: { click: again } }, "Try now")]);
  }
  if (store.store && !store.store.up) {
    const oldest = Math.min(...[...store.rows.values()].map((row) => row.started_at));
    lines.push(["timeout", "The database does not answer.", ` Asks go on.${Number.isFinite(oldest) ? ` History older than ${hms(oldest)} is not available.` : ""}`]);
  } else if (lostNote) lines.push(["timeout", lostNote, ""]);
  const said = lines.map(([, bold, text]) => bold + text).join("\n");
  if (banners.dataset.said === said) return;
  banners.dataset.said = said;
  banners.replaceChildren(...lines.map(([shape, bold, text, button]) => h("div", { class: `banner${button ? "" : " plain"}` }, icon(shape), h("p", null, h("b", null, bold), text), button)));
}
on("how", trouble);
on("store", () => {
  const lost = store.store.lost;
  if (lostBefore !== null && lost > lostBefore) lostNote = `${(lost - lostBefore).toLocaleString("en")} exchanges were not stored during the outage.`;
  if (store.store.up) lostBefore ??= lost;
  trouble();
});
on("state", () => { leave.hidden = !store.signedIn; tabs[3].hidden = !store.connector; });
on("agents", () => { count.textContent = String(store.agents.size); });

setInterval(() => {
  if (document.hidden) return;
  view?.tick?.(now());
  if (store.how !== "live") trouble();
}, 1000);

show();
start();
(window.requestIdleCallback ?? setTimeout)(async () => {
  try { for (const name of Object.keys(LAZY).filter((one) => one !== "connector")) loaded[name] ??= (await LAZY[name]())[name]; } catch { /* it is tried again when it is needed */ }
});
