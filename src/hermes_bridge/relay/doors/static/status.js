// What a status is called, how it looks, and how its exchange's outcome is put in words.

import { bdi, h, icon } from "./dom.js";
import { hm, inSeconds, span, spoken, timer, when } from "./time.js";
import { named } from "./who.js";
import { say } from "./words.js";

const S = (code, shape, tone, group) => ({ label: say.status[code], shape, tone, group });

export const STATUS = {
  queued: S("queued", "queued", "live", "open"),
  sent: S("sent", "sent", "live", "open"),
  taken: S("taken", "taken", "live", "open"),
  pending: S("pending", "taken", "live", "open"),
  ok: S("ok", "ok", "ok", "answered"),
  timeout: S("timeout", "timeout", "bad", "unanswered"),
  deadline_exceeded: S("deadline_exceeded", "deadline", "bad", "unanswered"),
  agent_disconnected: S("agent_disconnected", "cut", "bad", "unanswered"),
  agent_offline: S("agent_offline", "away", "bad", "unanswered"),
  failed: S("failed", "failed", "bad", "unanswered"),
  cancelled: S("cancelled", "cancelled", "off", "cancelled"),
  unknown_agent: S("unknown_agent", "refused", "ref", "refused"),
  unknown_conversation: S("unknown_conversation", "refused", "ref", "refused"),
  not_allowed: S("not_allowed", "refused", "ref", "refused"),
  would_deadlock: S("would_deadlock", "refused", "ref", "refused"),
  turn_limit: S("turn_limit", "refused", "ref", "refused"),
  queue_full: S("queue_full", "refused", "ref", "refused"),
  rate_limited: S("rate_limited", "refused", "ref", "refused"),
  message_too_large: S("message_too_large", "refused", "ref", "refused"),
  invalid_message: S("invalid_message", "refused", "ref", "refused"),
  shutting_down: S("shutting_down", "refused", "ref", "refused"),
};

export const GROUPS = Object.entries(say.groups);

export const status = (row) => STATUS[row.status] ?? ({ label: row.status, shape: "unknown", tone: "off", group: row.ended_at ? "unanswered" : "open" });
export const isOpen = (row) => !row.ended_at;
export const isRefused = (row) => status(row).group === "refused";

/** Whether an open ask has less than a quarter of its window left. */
export function atRisk(row, at) {
  if (!isOpen(row) || row.status === "queued" || !row.deadline) return false;
  return row.deadline - at < (row.window_ms ?? 120000) / 4;
}

/** Since when the link of the asked agent is lost; 0 if it is there. */
export function lostSince(row) {
  const last = row.outages?.at(-1);
  return last?.length === 1 ? last[0] : 0;
}

/** How long there was no sign of life. A wake that was sent again is none; a link that came back is. */
export const silence = (row, at) => at - Math.max(row.heard_at ?? 0, row.taken_at ?? 0, row.sent_at ?? 0, row.outages?.at(-1)?.[1] ?? 0, row.started_at);

/** The badge: shape, colour and words, always all three. */
export function badge(row, at) {
  const known = status(row);
  if (atRisk(row, at)) return h("span", { class: "st s-warn" }, icon(known.shape), say.status.silent(timer(silence(row, at))));
  return h("span", { class: `st s-${known.tone}` }, icon(known.shape), known.label);
}

export const badgeKey = (row, at) => `${row.status}${atRisk(row, at) ? timer(silence(row, at)) : ""}`;

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

const E = say.ends, R = say.refused;

const ENDS = {
  timeout: (row) => E.timeout(row.window_ms && span(row.window_ms)),
  deadline_exceeded: (row) => E.cap(row.cap_at > row.started_at && span(row.cap_at - row.started_at)),
  agent_disconnected: (row, limits) => {
    const lost = lostSince(row), waited = lost ? row.ended_at - lost : limits.reconnect_grace_ms;
    return E.linkLost(named(row.to), waited && inSeconds(waited));
  },
  agent_offline: (row, limits, agent) =>
    row.error ? E.offline(named(row.to), bdi(sentence(row.error))) : E.neverReached(named(row.to), agent?.since && !agent.online && when(agent.since)),
  failed: (row) => E.failed(named(row.to), bdi(row.error ?? E.noReason)),
  cancelled: (row) => [bdi(row.error ? sentence(row.error) : E.cancelled)],
};

const REFUSED = {
  unknown_agent: (row) => R.unknownAgent(named(row.to)),
  unknown_conversation: (row) => R.notPart(named(row.from)),
  not_allowed: (row) => R.notAllowed(named(row.from), named(row.to)),
  would_deadlock: (row) => (row.error && row.error !== "depth" ? R.deadlock(bdi(row.error)) : R.deadlock(named(row.from), named(row.to))),
  turn_limit: (row, limits) => R.turns(limits.max_turns),
  queue_full: (row, limits) => R.queue(named(row.to), limits.max_pending),
  rate_limited: (row, limits) => R.rate(named(row.from), limits.rate_per_minute),
  message_too_large: (row, limits) => R.tooLarge(limits.max_message_bytes && Math.round(limits.max_message_bytes / 1024)),
  invalid_message: () => R.invalid,
  shutting_down: () => R.restarting,
};

/** Why there is no answer, in words: nodes or a string. */
export function reason(row, limits = {}, agent = null) {
  const say = ENDS[row.status] ?? REFUSED[row.status];
  if (say) return say(row, limits, agent);
  return row.error ? [bdi(row.error)] : E.other(row.status);
}

/** One sentence for a screen reader. */
export function spokenRow(row) {
  const end = row.status === "ok" ? say.spoken.answeredIn(spoken(row.ended_at - row.started_at, 1)) : status(row).label.toLowerCase();
  return say.spoken.row(row.from, row.to, end, hm(row.started_at));
}
