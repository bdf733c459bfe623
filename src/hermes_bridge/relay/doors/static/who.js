// An agent as people recognise it: a rounded square with two letters, a dot for its link, its name.

import { bdi, h } from "./dom.js";

const LONGEST = 32;

export function hue(name) {
  let hash = 2166136261;
  for (const char of name) hash = Math.imul(hash ^ char.codePointAt(0), 16777619);
  return (hash >>> 0) % 10;
}

export function letters(name) {
  const bare = name.replace(/[-_ ]?(bot|agent)$/iu, "") || name;
  const [first = "?", second = ""] = [...bare.replace(/[^\p{L}\p{N}]/gu, "")];
  return first.toUpperCase() + second.toLowerCase();
}

export const WORDS = { online: "online", reconnecting: "reconnecting", offline: "offline", none: "" };
export const presence = (agent) => agent?.presence ?? (agent ? (agent.online ? "online" : "offline") : "none");

export function square(name, agent, size = "") {
  const how = presence(agent);
  return h("span", { class: `av ${size} h${hue(name)}`, "aria-hidden": "true" }, letters(name), h("i", { class: how, data: { presence: name } }));
}

export const short = (name) => ([...name].length > LONGEST ? `${[...name].slice(0, LONGEST - 1).join("")}…` : name);

/** Square and name, as a link to the agent. */
export function who(name, agent, { size = "", words = [], link = true } = {}) {
  const state = presence(agent);
  const parts = [square(name, agent, size), bdi(short(name), words), state !== "none" && state !== "online" && h("span", { class: "sr" }, ` (${WORDS[state]})`)];
  const title = short(name) === name ? null : name;
  return link && agent
    ? h("a", { class: "who", href: `/ui/agents?a=${encodeURIComponent(name)}`, title }, parts)
    : h("span", { class: "who", title }, parts);
}
