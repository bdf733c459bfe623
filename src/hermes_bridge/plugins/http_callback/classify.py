"""What kind of text Hermes hands over: the answer, a status line, an error, a notice of its own.

Pure. Only the final answer carries the mark `notify`; everything else that Hermes says on the way
(fallback model, context pressure, busy notes, its own delivery notices) is not for a customer.
"""

import re
from dataclasses import dataclass

RECOVERED = "♻️ Recovered reply"
PLAIN_PREFIX = "(Response formatting failed, plain text:)"
PLAIN_KEY = "gateway.notify.plain_fallback_prefix"
NOTICE_PREFIX = "⚠️ Message delivery failed after multiple attempts"
INTERRUPTED_PREFIX = "Operation interrupted"
CRASH_PREFIX = "Sorry, I encountered an error ("
SILENCE = frozenset({"[SILENT]", "SILENT", "NO_REPLY", "[NO_REPLY]", "HEARTBEAT_OK"})
FALLBACK_CUT = 3500

_ERROR = re.compile(
    r"^\W*(api call failed|http \d{3}\b|error code ?:|provider authentication failed"
    r"|non-retryable error|rate limited after \d+ retries|the model provider failed"
    r"|no response was generated|the request failed|max(imum)? retries)",
    re.IGNORECASE,
)
_LONGEST_ERROR = 1_500
_ERROR_MARKS = (
    "\n\nProvider said: ",
    "Your request was not processed. Send it again",
    "and retrying won't help. Pick another model with /model",
)


@dataclass(frozen=True)
class Sorted:
    """The kind, the text that counts, and why it is held back ("" when it is not)."""

    kind: str
    content: str
    held_back: str = ""


@dataclass(frozen=True)
class Circumstance:
    """How a text came: on the webhook path or not, marked as final or not."""

    webhook: bool
    notify: bool = False
    recorded: bool = False
    """Hermes' delivery ledger holds exactly this text as a final answer."""
    job: bool = False
    bridged: bool = True
    """Whether the webhook platform's marks can be seen at all on this Hermes."""
    turn_failed: bool = False
    """Hermes has said that the turn failed: its text is no answer."""
    failed: str = ""
    """The text of this chat that we could not store a moment ago, if any."""


def unwrap(content: str, failed: str) -> str:
    """Take Hermes' "recovered" and "plain text" wrappings off an answer."""
    if content.startswith(RECOVERED):
        content = content.partition("\n\n")[2] or content
    if failed and content != failed and content.endswith(failed[:FALLBACK_CUT]):
        return failed
    return content


def is_notice(content: str) -> bool:
    """Tell Hermes' own words about a failed delivery or an interrupted turn."""
    return content.startswith((PLAIN_PREFIX, PLAIN_KEY, NOTICE_PREFIX, INTERRUPTED_PREFIX))


def looks_like_error(content: str) -> bool:
    """Tell a raw provider error that Hermes gives out as if it were the answer."""
    text = content.strip()
    if text.startswith(CRASH_PREFIX):
        return True
    if len(text) > _LONGEST_ERROR:
        return False
    return _ERROR.match(text) is not None or any(mark in text for mark in _ERROR_MARKS)


def sort(content: str, how: Circumstance) -> Sorted:
    """Say what a text is."""
    marked = content.startswith(RECOVERED)
    content = unwrap(content, how.failed)
    if is_notice(content):
        return Sorted("notice", content, "Hermes' own notice, not an answer")
    if how.job:
        return Sorted("cron", content)
    if not how.webhook and how.bridged:
        return Sorted("direct", content)
    if content.strip() in SILENCE:
        return Sorted("silence", content, "the agent chose not to answer")
    if how.turn_failed or looks_like_error(content):
        return Sorted("error", content)
    if how.webhook and not (how.notify or how.recorded or marked or how.failed == content):
        return Sorted("status", content)
    return Sorted("final", content)
