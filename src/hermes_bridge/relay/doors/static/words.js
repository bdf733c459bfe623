// Every sentence and label that the page's modules write. (page.html and login.html hold their own.)
// Times, sizes and counts come in as text that is ready; a name comes in as text or, where it stands
// among other words of a row, as a node: such a sentence is a list of parts.

export const number = (n) => n.toLocaleString("en");
const many = (n, one, more = `${one}s`) => `${number(n)} ${n === 1 ? one : more}`;

export const say = {
  product: "hermes-bridge",
  title: (view) => `${view} · hermes-bridge`,
  unknown: "–",
  wait: "…",

  views: { nav: "Views", exchanges: "Exchanges", agents: "Agents", map: "Map", connector: "Connector", conversation: "Conversation" },
  nowhere: { title: "Nothing here", head: "Nothing is here", text: "This address leads to no view." },

  bar: {
    search: "Search messages and answers", toSearch: "Search", logOut: "Log out",
    how: { live: "Live", retry: "Reconnecting", poll: "Polling every 3 s" },
    theme: (name) => `Theme: ${name}`,
  },

  spoken: {
    news: (n) => many(n, "new exchange"),
    risk: (asker, target) => `Ask from ${asker} to ${target} is at risk`,
    row: (asker, target, end, time) => `${asker} asked ${target}, ${end}, ${time}`,
    answeredIn: (time) => `answered in ${time}`,
    asked: "asked", wasAskedBy: "was asked by", and: "and",
    presence: (word) => ` (${word})`,
    of: (asker, target) => ` of ${asker} to ${target}`,
    seconds: (n) => `${n} second${n === 1 ? "" : "s"}`,
    minutes: (n) => `${n} minute${n === 1 ? "" : "s"}`,
  },

  unit: {
    ms: (n) => `${n} ms`, s: (n) => `${n} s`, min: (n) => `${n} min`, h: (n) => `${n} h`, d: (n) => `${n} d`,
    days: (d, h) => `${d} d ${h} h`, part: (n) => `${n} %`,
    bytes: (n) => `${n} B`, kilo: (n) => `${n} KB`, mega: (n) => `${n} MB`,
  },
  day: { today: "Today", yesterday: "Yesterday" },

  status: {
    queued: "Queued", sent: "Sent", taken: "Working", pending: "Working", ok: "Answered", timeout: "Timed out",
    deadline_exceeded: "Deadline passed", agent_disconnected: "Link lost", agent_offline: "Agent offline", failed: "Failed",
    cancelled: "Cancelled", unknown_agent: "Unknown agent", unknown_conversation: "Unknown conversation",
    not_allowed: "Not allowed", would_deadlock: "Would deadlock", turn_limit: "Turn limit", queue_full: "Queue full",
    rate_limited: "Rate limited", message_too_large: "Too large", invalid_message: "Invalid message",
    shutting_down: "Relay restarting",
    silent: (time) => `Silent ${time}`, late: "Late answer",
  },
  groups: { open: "Open", answered: "Answered", unanswered: "No answer", cancelled: "Cancelled", refused: "Refused" },

  /** Why there is no answer. */
  ends: {
    timeout: (time) => `No sign of life${time ? ` for ${time}` : ""}.`,
    cap: (time) => `Still working at the ${time ? `${time} ` : ""}limit.`,
    linkLost: (agent, time) => ["The link of ", agent, ` was lost and did not come back ${time ? `within ${time}` : "in time"}.`],
    offline: (agent, error) => [agent, ": ", error],
    neverReached: (agent, since) => ["Never reached: ", agent, since ? ` has had no link since ${since}.` : " had no link."],
    failed: (agent, error) => [agent, " failed: ", error], noReason: "it gave no reason",
    cancelled: "Cancelled.",
    other: (code) => `Ended: ${code}.`,
  },
  refused: {
    unknownAgent: (name) => ["No agent is called ", name, "."],
    notAllowed: (asker, target) => [asker, " may not ask ", target, "."],
    notPart: (asker) => [asker, " is not part of this conversation."],
    deadlock: (...chain) => ["Refused: ", ...chain.flatMap((name, i) => (i ? [" and ", name] : [name])), " would wait for each other."],
    turns: (most) => `${most ?? "Too many"} exchanges within an hour, the limit.`,
    queue: (target, most) => [target, ` has ${most ?? "too many"} asks waiting, the limit.`],
    rate: (asker, most) => [asker, most ? ` asked ${most} times within a minute, the limit.` : " asks more often than it may."],
    tooLarge: (kib) => `The message is too large${kib ? `: the limit is ${kib} KiB` : ""}.`,
    invalid: "The message was empty or held characters that cannot be stored.",
    restarting: "The relay was restarting.",
  },

  pulse: {
    queued: "Waiting for the agent's link.",
    open: (silent, left) => `Silent for ${silent}. Times out in ${left} unless a heartbeat comes.`,
    capped: (silent, left) => `Silent for ${silent}. Ends at its limit in ${left} unless it is answered.`,
    lost: (time, left) => `Link lost ${time} ago. Ends in ${left} unless it comes back.`,
    taken: (time) => `taken after ${time}`, sent: (times) => `sent ${times} times`, beats: (n) => many(n, "heartbeat"),
    ended: (label, time) => `${label} after ${time}`, late: (time) => `late answer ${time} after that`,
  },

  pending: {
    waiting: "Waiting for the answer",
    queued: (agent) => ["Queued until ", agent, " is back"],
    left: (time) => `${time} left`,
    cap: (limit, time) => `ends at the ${limit} limit in ${time}`,
    silent: (time, left) => `Silent ${time}, times out in ${left}`,
    lost: (time, left) => `Link lost ${time}, ends in ${left}`,
  },

  row: {
    more: "Show more", less: "Show less", all: (size) => `Show all (${size})`, noText: "(no text)", empty: "(empty)",
    open: "Open conversation", copyLink: "Copy link", linkCopied: "Link copied", copied: "Copied", trace: "Trace",
    copyMessage: "Copy message", copyAnswer: "Copy answer", cancel: "Cancel ask",
    lateBy: (time) => `Late by ${time}. `, fetched: (agent, time) => ["Fetched by ", agent, ` at ${time}.`], notFetched: "Not fetched.",
    after: (time) => `after ${time}`, deep: (n) => `${n} deep`,
    taken: "taken", attempt: "attempt", turn: "turn", nested: "nested", heartbeats: (n) => (n === 1 ? "heartbeat" : "heartbeats"),
  },

  feed: {
    name: "Exchanges", fresh: (n) => `${n} new`, older: "Load older", loading: "Loading…", searching: "Searching…",
    everything: (date) => `That is everything since ${date}.`,
    total: (n) => many(n, "exchange"), some: (n) => `${number(n)}+ exchanges`,
    filters: "Filters", clear: "Clear filters", always: "Search all time",
    none: "No exchanges yet", start: "Start one with: ", startWith: "hermes-bridge ask NAME MESSAGE",
    noMatch: "No exchange matches",
    between: (a, b) => ` between ${a} and ${b}`, withAgents: (names) => ` with ${names.join(", ")}`,
    holds: (words) => ` that holds “${words}”`,
    within: (range, from) => (/^\d|^$/.test(from) ? ` in ${range}` : `${/^-/.test(from) ? " in the" : ""} ${range.toLowerCase()}`),
    nothing: (pair, words, range) => `Nothing${pair}${words}${range}.`,
  },
  strip: { name: "Agents", online: (all) => ` of ${all} online`, all: "All agents" },

  filter: {
    agent: "Agent", status: "Status", time: "Time", any: "Any", clear: (name) => `Any ${name.toLowerCase()}`,
    find: "Find an agent", role: "Role", roles: { any: "Any role", asker: "Asker", target: "Target" },
    asks: " asks", isAsked: " is asked", and: (name) => ` and ${name}`, others: (n) => ` +${n}`,
    always: "All time", last: (n, unit) => (n === 1 ? `Last ${unit}` : `Last ${n} ${unit}s`), units: { m: "minute", h: "hour", d: "day" }, aDay: "A day", from: "From", to: "To",
    range: (from, to) => `${from || "…"} – ${to || "now"}`,
  },

  rail: {
    name: "Now", open: "Open asks", nothing: "Nothing is waiting.", risk: (n) => `${number(n)} at risk`, more: (n) => many(n, "more open ask"),
    hour: "Last hour", asks: "Asks", answered: "Answered", median: "Median", p95: "p95", now: "now",
    minute: (time, asks, failed) => `${time}: ${asks} asks, ${failed} without an answer`,
    bars: (asks, failed) => `${asks} asks in the last hour, ${failed} without an answer`,
  },

  conversation: {
    rail: "Outline and details", outline: "Exchanges of this conversation", details: "Details",
    between: (a, b) => `Conversation between ${a} and ${b}`,
    since: (n, time, more) => `${more ? "the last " : ""}${many(n, "exchange")} since ${time}`,
    turns: (n, most) => `turn ${n} of ${most} this hour`,
    pause: (time) => `${time} later`, late: (time) => `${time} late`, below: (n) => `${n} new below`,
    nested: (agent) => ["asked while answering ", agent], forgotten: ", which the relay no longer keeps",
    none: "No such conversation", old: (days) => `It may be older than ${days ? `${number(days)} days` : "the relay keeps"}.`,
    cameBack: (times, time) => ` The link was lost ${times === 1 ? "once" : `${times} times`} and came back after ${time}${times === 1 ? "" : " at most"}.`,
    taken: "taken", sentAgain: "sent again", answered: "answered", lateAnswer: "late answer",
    again: (time, n) => `${time}, attempt ${n}`,
    stop: (label) => `${label}.`, trace: "Open trace",
  },
  detail: {
    conversation: "Conversation", exchange: "Exchange", trace: "Trace", asked: "Asked", taken: "Taken", sent: "Sent", late: "Late answer",
    silence: "Longest silence", of: (time, window) => `${time} of ${window}`, sizes: "Sizes",
    bytes: (asked, answered) => `${asked} asked${answered ? `, ${answered} answered` : ""}`, data: "Data", answerData: "Answer data",
  },

  agents: {
    heads: { name: "Agent", link: "Link", work: "Working on", queue: "Queue", in: "Asks in", out: "Asks out", answered: "Answered", median: "Median", error: "Last error" },
    range: "Range", ranges: { "1h": "1 hour", "24h": "24 hours", "7d": "7 days" },
    trouble: "Busy or in trouble", worst: "Worst first", filter: "Filter agents",
    online: (all) => ` of ${all} online`, open: (n) => (n === 1 ? " open ask" : " open asks"), queued: " queued", counting: "counting…",
    noMatch: "No agent matches", takeAway: "Take a filter away.", none: "No agents are configured", add: "Add one with: ", addWith: "hermes-bridge agents add NAME",
    presence: { online: "Online", reconnecting: "Reconnecting", offline: "Offline" },
    never: "never seen", for: (time) => `for ${time}`, since: (time) => `since ${time}`, lost: (time) => `lost ${time} ago`,
    doing: (agent) => ["for ", agent, " "], waiting: (n) => `${number(n)} queued, oldest `, idle: "Idle",
    lastError: (time, agent) => [`${time}, asked by `, agent], error: (label, time, agent) => [`${label} ${time}, asked by `, agent],
    askedBy: (agent) => ["asked by ", agent],
    counts: (inside, out) => `${inside} in, ${out} out`, answered: (part) => `${part} answered`,
    description: "Description", skills: "Skills", mayAsk: "May ask", everybody: "everybody", nobody: "nobody", list: ", ",
    rate: "Rate", perMinute: (n) => `${n} asks a minute`, noLimit: "no limit", pending: "Asks waiting", upTo: (what) => `up to ${what}`,
    held: "A call is held", client: "Client", protocol: "Protocol", byProtocol: (n) => `protocol ${n}`,
    exchanges: "Show its exchanges", onMap: "Show on the map", errors: "Last errors", noErrors: "None.",
    links: "Links since the relay started", lasts: "lasts", lasted: (time, superseded) => `for ${time}${superseded ? ", then superseded" : ", then lost"}`,
  },
  presence: { online: "online", reconnecting: "reconnecting", offline: "offline", none: "" },

  map: {
    ranges: { "15m": "15 min", "1h": "1 hour", "24h": "24 hours", "7d": "7 days" },
    last: { "15m": "15 minutes", "1h": "hour", "24h": "24 hours", "7d": "7 days" },
    pairs: "Pairs", panel: "Who asks whom", links: "Agents in the order of the ring", table: "As a table",
    between: (asks) => (asks === 1 ? " ask between " : " asks between "), agents: " agents", failed: " failed",
    edge: (asker, target, asks, failed) => `${asker} asked ${target}: ${asks} asks, ${failed} failed`,
    picture: (range) => `Who asked whom in the last ${range}. The list beside it says the same in words.`,
    all: (n) => `Show all ${n} pairs`, thickness: "Thickness: number of asks", red: "Red, dashed end: share that failed", dots: "Online, offline",
    quieter: (n) => `${n} quieter agents are not drawn`, lighter: (n, asks) => `${n} pairs with ${asks} asks or fewer are not drawn`,
    node: (name, presence, asks) => `${name}, ${presence}, ${asks} asks`, nearer: "Nearer", farther: "Farther",
    heads: { asker: "Asker", target: "Target", asks: "Asks", failed: "Failed", median: "Median", pair: "Pair" },
    nobody: (range) => `Nobody asked anybody in the last ${range}.`, busiest: "Busiest pairs", clear: "Clear selection",
    askedOthers: "Asked others", wasAsked: "Was asked", show: (n, name) => `Show the ${n} exchanges of ${name}`,
  },

  connector: {
    heads: { bot: "Identity", account: "Account", gateway: "Gateway", channels: "Channels", inbox: "Inbox", oldest: "Oldest", error: "Last error" },
    panel: "Identities", online: "Online", connected: "Connected", absent: "Absent",
    none: "No connector runs here", why: "It runs in the relay's process when the configuration has a connector section.",
    starting: "The connector is starting", soon: "Its accounts show here in a moment.",
    down: "The connector does not run", log: "Its log says why.", again: "It is tried again every few seconds. Asks between agents go on.",
    accounts: (all) => ` of ${all} accounts online`, gateways: (n) => (n === 1 ? " gateway connected" : " gateways connected"), store: "The store does not answer",
  },

  cancel: {
    head: "Cancel this ask?", keep: "Keep waiting", go: "Cancel ask", going: "Cancelling…", done: "Ask cancelled", show: "Show", close: "Close",
    text: (asker, target) => `${asker} is told at once that the ask was cancelled. ${target} is asked to stop; what it already did stays done.`,
    failed: (why) => `That did not work: ${why}`, answered: "It was answered meanwhile. ", ended: "It ended meanwhile. ",
  },
  keys: {
    head: "Keys", single: "Single letters work", close: "Close",
    list: [
      ["/", "Search"], ["g e, g a, g m", "Exchanges, Agents, Map"], ["j, k", "Next, previous row"], ["Space or x", "Unfold, fold"],
      ["Enter or o", "Open the conversation"], ["c", "Copy link"], ["f", "First filter"], ["n", "Show the new ones"], [".", "Riskiest open ask"],
      ["Shift C", "Cancel the ask (asks first)"], ["t", "Theme"], ["Esc", "Close, clear search, back"], ["?", "This list"],
    ],
  },

  trouble: {
    silent: "The relay does not answer.", status: (code) => `The relay answered with status ${code}.`,
    restarting: "The relay is restarting.", lost: "Connection to the relay lost.",
    asOf: (time, seconds) => ` Shown as of ${time}. Next try in ${seconds} s.`, tryNow: "Try now",
    store: "The database does not answer.", goesOn: (time) => ` Asks go on.${time ? ` History older than ${time} is not available.` : ""}`,
    notStored: (n) => `${many(n, "exchange")} ${n === 1 ? "was" : "were"} not stored during the outage.`,
    load: "Could not load this.", again: "Try again", loadAgain: "Could not load this. Try again", reload: "Could not load this. Load the page again.",
  },
};
