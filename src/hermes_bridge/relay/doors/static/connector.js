// The view Connector: the identities of a connector that runs in the relay's process.

import { bdi, h, icon, renew, selected } from "./dom.js";
import { dots } from "./exchanges.js";
import { ask } from "./store.js";
import { age } from "./time.js";
import { square } from "./who.js";
import { say } from "./words.js";

const W = say.connector, NUMBERS = new Set(["channels", "inbox", "oldest"]);
const state = (tone, shape, text) => h("b", { class: `st s-${tone}` }, icon(shape), text);

export function connector() {
  const sum = h("div", { class: "sum" }, h("h1", null, say.views.connector));
  const box = h("section", { class: "panel", "aria-label": W.panel });
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
      if (box.querySelector("table") && error.status !== 404) return; // what was shown stays; the bar says how the link is
      renew(box, h("div", { class: "none" }, dots(), h("h2", null, error.status === 404 ? W.none : say.trouble.load),
        h("p", { class: "sub" }, error.status === 404 ? W.why : error.message)));
    }
  }

  /** It has not started yet, or could not. */
  function waiting(found) {
    const starting = found.status === "starting";
    renew(sum, h("h1", null, say.views.connector));
    renew(box, h("div", { class: "none" }, dots(), h("h2", null, starting ? W.starting : W.down),
      h("p", { class: "sub" }, starting ? W.soon : bdi(found.cause ?? W.log)),
      !starting && h("p", { class: "sub" }, W.again)));
  }

  function draw(found) {
    const up = found.identities.filter((row) => row.account === "online").length;
    renew(sum, h("h1", null, say.views.connector), h("p", null, h("b", null, String(up)), W.accounts(found.identities.length)),
      h("p", null, h("b", null, String(found.connections)), W.gateways(found.connections)),
      found.store === "down" ? state("bad", "timeout", W.store) : "");
    if (!selected(box)) renew(box, h("table", { class: "table stack" },
      h("thead", null, h("tr", null, Object.entries(W.heads).map(([key, name]) => h("th", { class: NUMBERS.has(key) ? "n" : null }, h("button", { disabled: true }, name))))),
      h("tbody", null, found.identities.map(line))));
  }

  /** One cell; on a phone, where the heads are not seen, it says itself what it is. */
  const cell = (key, kind, ...content) => h("td", { class: kind, data: { head: W.heads[key] } }, ...content);

  const line = (row) => h("tr", null,
    h("td", null, h("span", { class: "who" }, square(row.bot, null, "l"), h("span", { class: "label" }, bdi(row.bot), h("p", null, row.platform)))),
    cell("account", "lnk", row.account === "online" ? W.online : state("warn", "cut", row.account.charAt(0).toUpperCase() + row.account.slice(1)), row.reason && h("span", null, bdi(row.reason))),
    cell("gateway", "lnk", row.gateway === "connected" ? W.connected : state("off", "away", W.absent)),
    cell("channels", "n", String(row.channels ?? say.unknown)), cell("inbox", `n${row.inbox ? "" : " dim"}`, String(row.inbox)),
    cell("oldest", "n", row.oldest_ms ? age(row.oldest_ms) : say.unknown), cell("error", "err long", row.last_error ? bdi(row.last_error) : h("span", { class: "dim" }, say.unknown)));

  load();
  return { el, title: say.views.connector, tab: "connector", tick() { if (Date.now() > due && !document.hidden) load(); }, close() { closed = true; } };
}
