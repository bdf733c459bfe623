// The frame: bar, views by address, search, theme, keys, banners.

import { h, icon } from "./dom.js";
import { exchanges } from "./exchanges.js";
import { again, start } from "./live.js";
import { change, on, store } from "./store.js";
import { hms, now } from "./time.js";

const main = document.getElementById("main");
const polite = document.getElementById("polite");
const banners = document.getElementById("banners");
let view = null;

const app = {
  replace(path, query) {
    const text = query.toString().replaceAll("%2C", ",");
    history.replaceState(history.state, "", `${path}${text ? `?${text}` : ""}${location.hash}`);
  },
  /** What stands in the search box; a search that was about to run has run by this. */
  searched() {
    clearTimeout(typing);
    return find.value.trim();
  },
  clearSearch() { find.value = ""; },
  announce(n) {
    heldBack += n;
    if (announcing) return;
    announcing = setTimeout(() => { polite.textContent = `${heldBack} new exchange${heldBack === 1 ? "" : "s"}`; heldBack = 0; announcing = 0; }, 1000);
  },
};
let heldBack = 0, announcing = 0;

function show() {
  view?.close();
  const query = new URLSearchParams(location.search);
  view = exchanges(query, app);
  find.value = query.get("q") ?? "";
  document.title = `${view.title} · hermes-bridge`;
  main.replaceChildren(view.el);
}

// The bar

const live = h("p", { class: "live", data: { how: "live" } }, h("span", null, "Live"));
const find = h("input", { type: "search", placeholder: "Search messages and answers", "aria-label": "Search messages and answers", maxlength: 200, autocomplete: "off", spellcheck: "false" });
const leave = h("button", { class: "icon", "aria-label": "Log out", title: "Log out", hidden: true, on: { click: async () => {
  await change("/ui/logout").catch(() => null);
  location.assign("/ui/login");
} } }, icon("exit"));

const THEMES = ["system", "light", "dark"];
const theme = h("button", { class: "icon", on: { click: () => {
  const next = THEMES[(THEMES.indexOf(themeNow()) + 1) % 3];
  if (next === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
  try { next === "system" ? localStorage.removeItem("hermes-bridge.theme") : localStorage.setItem("hermes-bridge.theme", next); } catch { /* not kept */ }
  labelTheme();
} } });
const themeNow = () => document.documentElement.dataset.theme ?? "system";
function labelTheme() {
  theme.setAttribute("aria-label", `Theme: ${themeNow()}`);
  theme.title = `Theme: ${themeNow()}`;
  theme.replaceChildren(icon({ system: "half", light: "sun", dark: "moon" }[themeNow()]));
}
labelTheme();

const bar = document.querySelector(".bar");
const search = h("div", { class: "find", role: "search" }, icon("find"), find, h("kbd", { "aria-hidden": "true" }, "/"));
bar.append(h("div", null,
  h("a", { class: "brand", href: "/ui" }, icon("mark"), h("span", null, "hermes-bridge")),
  search, live,
  h("div", { class: "icons" },
    h("button", { class: "icon phone", "aria-label": "Search", on: { click: () => { bar.classList.add("finding"); find.focus(); } } }, icon("find")),
    theme, leave)));
find.addEventListener("blur", () => bar.classList.remove("finding"));

let typing = 0;
const searchNow = () => { clearTimeout(typing); view.search?.(); };
find.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(searchNow, 250); });
find.addEventListener("keydown", (event) => {
  if (event.key === "Enter") searchNow();
  if (event.key === "Escape") { if (find.value) { find.value = ""; searchNow(); } else find.blur(); event.preventDefault(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  bar.classList.add("finding");
  find.focus();
});

// Trouble

function trouble() {
  const lines = [];
  live.dataset.how = store.how;
  live.firstChild.textContent = { live: "Live", retry: "Reconnecting", poll: "Polling every 3 s" }[store.how];
  if (store.how === "retry" && store.ready) {
    const wait = Math.max(0, Math.ceil((store.nextTry - Date.now()) / 1000));
    lines.push(h("div", { class: "banner" }, icon("cut"), h("p", null, h("b", null, "Connection to the relay lost."), ` Shown as of ${hms(store.asOf)}. Next try in ${wait} s.`), h("button", { class: "btn tiny push", on: { click: again } }, "Try now")));
  }
  if (!store.storeUp) {
    const oldest = Math.min(...[...store.rows.values()].map((row) => row.started_at));
    lines.push(h("div", { class: "banner plain" }, icon("timeout"), h("p", null, h("b", null, "The database does not answer."), " Asks go on.", Number.isFinite(oldest) ? ` History older than ${hms(oldest)} is not available.` : "")));
  }
  const text = lines.map((el) => el.textContent).join("");
  if (banners.textContent !== text + (lines.length ? "" : "")) banners.replaceChildren(...lines);
}
on("how", trouble);
on("store", trouble);
on("state", () => { leave.hidden = !store.signedIn; });

setInterval(() => {
  if (document.hidden) return;
  view?.tick(now());
  if (store.how === "retry") trouble();
}, 1000);

window.addEventListener("popstate", show);
show();
start();
