// An agent as people recognise it: a rounded square with two letters, a dot for its link, its name.

import { bdi, h, says } from "./dom.js";
import { say } from "./words.js";

const LONGEST = 32;

export function hue(name) {
  let hash = 2166136261;
  for (const char of name) hash = Math.imul(hash ^ char.codePointAt(0), 16777619);
  return (hash >>> 0) % 10;
}

export function letters(name) {
  const bare = name.replace(/[-_ ]?(bot|agent)$/iu, "") || name;
  const [first = [...bare][0], second = ""] = [...bare.replace(/[^\p{L}\p{N}]/gu, "")];
  return first.toUpperCase() + second.toLowerCase();
}

export const presence = (agent) => agent?.presence ?? (agent ? (agent.online ? "online" : "offline") : "none");

export function square(name, agent, size = "") {
  const how = presence(agent);
  return h("span", { class: `av ${size} h${hue(name)}`, "aria-hidden": "true" }, letters(name), h("i", { class: how, data: { presence: name } }));
}

export const short = (name) => ([...name].length > LONGEST ? `${[...name].slice(0, LONGEST - 1).join("")}…` : name);

const titled = (name) => (short(name) === name ? null : name);
const link = (name) => `/ui/agents?a=${encodeURIComponent(name)}`;

/** A name among other words: as long as it may be, the whole one in its title. */
export const named = (name) => h("bdi", { dir: "auto", title: titled(name) }, says(short(name)));

/** The same as a link to the agent, if there is one of that name. */
export const linked = (name, agent) => (agent ? h("a", { href: link(name), title: titled(name) }, bdi(short(name))) : named(name));

/** How the agent's link is, for those who do not see the dot. */
export const spokenPresence = (name, agent) => agent && h("span", { class: "sr", data: { said: name } }, say.spoken.presence(say.presence[presence(agent)]));

/** Square and name, as a link to the agent. */
export function who(name, agent, { size = "", words = [], link: asLink = true } = {}) {
  const parts = [square(name, agent, size), bdi(short(name), words), spokenPresence(name, agent)];
  return asLink && agent ? h("a", { class: "who", href: link(name), title: titled(name) }, parts) : h("span", { class: "who", title: titled(name) }, parts);
}

/** Brings dots and spoken words of a part of the page up to date. */
export function showPresence(root, agents) {
  for (const dot of root.querySelectorAll("i[data-presence]")) {
    const how = presence(agents.get(dot.dataset.presence));
    if (how !== "none" && dot.className !== how) dot.className = how;
  }
  for (const said of root.querySelectorAll("[data-said]")) {
    const text = say.spoken.presence(say.presence[presence(agents.get(said.dataset.said))]);
    if (said.textContent !== text) said.textContent = text;
  }
}
