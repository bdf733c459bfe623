// The view Connector: the identities of a connector that runs in the relay's process.

import { bdi, h, icon } from "./dom.js";
import { dots } from "./exchanges.js";
import { ask } from "./store.js";
import { age } from "./time.js";
import { square } from "./who.js";

const HEADS = ["Identity", "Account", "Gateway", "Channels", "Inbox", "Oldest", "Last error"];
const NUMBERS = new Set(["Channels", "Inbox", "Oldest"]);
const state = (tone, shape, text) => h("b", { class: `st s-${tone}` }, icon(shape), text);

export function connector() {
  const sum = h("div", { class: "sum" }, h("h1", null, "Connector"));
  const box = h("section", { class: "panel", "aria-label": "Identities" });
  const el = h("div", { class: "page" }, sum, box);
  let due = 0, closed = false;

  async function load() {
    due = Date.now() + 3000;
    try {
      const found = await ask("/ui/api/connector");
      if (closed) return;
      if (found.identities) draw(found); else waiting(found);
    } catch (error) {
      if (closed) return;
      box.replaceChildren(h("div", { class: "none" }, dots(), h("h2", null, error.status === 404 ? "No connector runs here" : "Could not load this"),
        h("p", { class: "sub" }, error.status === 404 ? "It runs in the relay's process when the configuration has a connector section." : error.message)));
    }
  }

  /** It has not started yet, or could not. */
  function waiting(found) {
    const starting = found.status === "starting";
    sum.replaceChildren(h("h1", null, "Connector"));
    box.replaceChildren(h("div", { class: "none" }, dots(), h("h2", null, starting ? "The connector is starting" : "The connector does not run"),
      h("p", { class: "sub" }, starting ? "Its accounts show here in a moment." : bdi(`${found.cause ?? "Its log says why."}`)),
      !starting && h("p", { class: "sub" }, "It is tried again every few seconds. Asks between agents go on.")));
  }

  function draw(found) {
    const up = found.identities.filter((row) => row.account === "online").length;
    sum.replaceChildren(h("h1", null, "Connector"), h("p", null, h("b", null, String(up)), ` of ${found.identities.length} accounts online`),
      h("p", null, h("b", null, String(found.connections)), ` gateway${found.connections === 1 ? "" : "s"} connected`),
      found.store === "down" ? state("bad", "timeout", "The store does not answer") : "");
    box.replaceChildren(h("table", { class: "table" },
      h("thead", null, h("tr", null, HEADS.map((name) => h("th", { class: NUMBERS.has(name) ? "n" : null }, h("button", { disabled: true }, name))))),
      h("tbody", null, found.identities.map(line))));
  }

  const line = (row) => h("tr", null,
    h("td", null, h("span", { class: "who" }, square(row.bot, null, "l"), h("span", { class: "label" }, bdi(row.bot), h("p", null, row.platform)))),
    h("td", { class: "lnk" }, row.account === "online" ? "Online" : state("warn", "cut", row.account), row.reason && h("span", null, bdi(row.reason))),
    h("td", { class: "lnk" }, row.gateway === "connected" ? "Connected" : state("off", "away", "Absent")),
    h("td", { class: "n" }, String(row.channels ?? "–")), h("td", { class: `n${row.inbox ? "" : " dim"}` }, String(row.inbox)),
    h("td", { class: "n" }, row.oldest_ms ? age(row.oldest_ms) : "–"), h("td", { class: "err" }, row.last_error ? bdi(row.last_error) : h("span", { class: "dim" }, "–")));

  load();
  return { el, title: "Connector", tab: "connector", tick() { if (Date.now() > due && !document.hidden) load(); }, close() { closed = true; } };
}
