// What a status is called, how it looks, and how its exchange's outcome is put in words.

import { bdi, h, icon } from "./dom.js";
import { took, span, timer, when } from "./time.js";

const S = (label, shape, tone, group) => ({ label, shape, tone, group });

export const STATUS = {
  queued: S("Queued", "queued", "live", "open"),
  sent: S("Sent", "sent", "live", "open"),
  taken: S("Working", "taken", "live", "open"),
  pending: S("Working", "taken", "live", "open"),
  ok: S("Answered", "ok", "ok", "answered"),
  timeout: S("Timed out", "timeout", "bad", "unanswered"),
  deadline_exceeded: S("Deadline passed", "deadline", "bad", "unanswered"),
  agent_disconnected: S("Link lost", "cut", "bad", "unanswered"),
  agent_offline: S("Agent offline", "away", "bad", "unanswered"),
  failed: S("Failed", "failed", "bad", "unanswered"),
  cancelled: S("Cancelled", "cancelled", "off", "cancelled"),
  unknown_agent: S("Unknown agent", "refused", "ref", "refused"),
  unknown_conversation: S("Unknown conversation", "refused", "ref", "refused"),
  not_allowed: S("Not allowed", "refused", "ref", "refused"),
  would_deadlock: S("Would deadlock", "refused", "ref", "refused"),
  turn_limit: S("Turn limit", "refused", "ref", "refused"),
  queue_full: S("Queue full", "refused", "ref", "refused"),
  rate_limited: S("Rate limited", "refused", "ref", "refused"),
  message_too_large: S("Too large", "refused", "ref", "refused"),
  invalid_message: S("Invalid message", "refused", "ref", "refused"),
  shutting_down: S("Relay restarting", "refused", "ref", "refused"),
};

export const GROUPS = [
  ["open", "Open"], ["answered", "Answered"], ["unanswered", "No answer"], ["cancelled", "Cancelled"], ["refused", "Refused"],
];

export const status = (row) => STATUS[row.status] ?? S(row.status, "unknown", "off", row.ended_at ? "unanswered" : "open");
export const isOpen = (row) => !row.ended_at;
export const isRefused = (row) => status(row).group === "refused";

/** Whether an open ask has less than a quarter of its window left. */
export function atRisk(row, at) {
  if (!isOpen(row) || row.status === "queued" || !row.deadline) return false;
  return row.deadline - at < (row.window_ms ?? 120000) / 4;
}

export const silence = (row, at) => at - Math.max(row.heard_at ?? 0, row.taken_at ?? 0, row.sent_at ?? 0, row.resent?.at(-1) ?? 0, row.started_at);

/** The badge: shape, colour and words, always all three. */
export function badge(row, at) {
  const known = status(row);
  if (atRisk(row, at)) return h("span", { class: "st s-warn" }, icon(known.shape), `Silent ${timer(silence(row, at))}`);
  return h("span", { class: `st s-${known.tone}` }, icon(known.shape), known.label);
}

export const badgeKey = (row, at) => `${row.status}${atRisk(row, at) ? timer(silence(row, at)) : ""}`;

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

const ENDS = {
  timeout: (row) => `No sign of life for ${span(row.window_ms ?? 120000)}.`,
  deadline_exceeded: (row) => `Still working at the ${span(Math.max(0, (row.cap_at ?? 0) - row.started_at) || 3600000)} limit.`,
  agent_disconnected: (row, limits) =>
    [`The link of `, bdi(row.to), ` was lost and did not come back within ${span(limits.reconnect_grace_ms ?? 30000)}.`],
  agent_offline: (row, limits, agent) =>
    row.error ? [bdi(row.to), ": ", bdi(sentence(row.error))]
      : ["Never reached: ", bdi(row.to), agent?.since && !agent.online ? ` has had no link since ${when(agent.since)}.` : " had no link."],
  failed: (row) => [bdi(row.to), " failed: ", bdi(row.error ?? "it gave no reason")],
  cancelled: (row) => [bdi(row.error ? sentence(row.error) : "Cancelled.")],
};

const REFUSED = {
  unknown_agent: (row) => ["No agent is called ", bdi(row.to), "."],
  unknown_conversation: (row) => [bdi(row.from), " is not part of this conversation."],
  not_allowed: (row) => [bdi(row.from), " may not ask ", bdi(row.to), "."],
  would_deadlock: (row) => (row.error && row.error !== "depth" ? ["Refused: ", bdi(row.error), " would wait for each other."] : ["Refused: ", bdi(row.from), " and ", bdi(row.to), " would wait for each other."]),
  turn_limit: (row, limits) => `${limits.max_turns ?? "Too many"} exchanges within an hour, the limit.`,
  queue_full: (row, limits) => [bdi(row.to), ` has ${limits.max_pending ?? "too many"} asks waiting, the limit.`],
  rate_limited: (row, limits) => [bdi(row.from), limits.rate_per_minute ? ` asked ${limits.rate_per_minute} times within a minute, the limit.` : " asks more often than it may."],
  message_too_large: (row, limits) => `The message is too large${limits.max_message_bytes ? `: the limit is ${Math.round(limits.max_message_bytes / 1024)} KiB` : ""}.`,
  invalid_message: () => "The message was empty or held characters that cannot be stored.",
  shutting_down: () => "The relay was restarting.",
};

/** Why there is no answer, in words: nodes or a string. */
export function reason(row, limits = {}, agent = null) {
  const say = ENDS[row.status] ?? REFUSED[row.status];
  if (say) return say(row, limits, agent);
  return row.error ? [bdi(row.error)] : `Ended: ${row.status}.`;
}

/** One sentence for a screen reader. */
export function spokenRow(row, time) {
  const known = status(row);
  const end = isOpen(row) ? known.label.toLowerCase() : row.status === "ok" ? `answered in ${took(row.ended_at - row.started_at)}` : known.label.toLowerCase();
  return `${row.from} asked ${row.to}, ${end}, ${time}`;
}
