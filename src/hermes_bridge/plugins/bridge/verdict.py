"""Is this text the answer? What Hermes sends through an adapter, told apart.

Hermes marks a turn's final text with `metadata["notify"] is True`; everything else (status lines,
home-channel hints, busy tips, shutdown notices, recovered replies) is a notice. But when the model
fails, its error text arrives as an ordinary final. The end of the turn, told by the
`on_session_end` hook, and the fixed sentences of both versions give it away.
"""

from dataclasses import dataclass

from .inbox import Reply

_ALWAYS = ("⚠️ No reply: ", "explainer.")
"""How Hermes begins its own explanation of a turn without a text (the second: without locales)."""
_SENTENCES = (
    *_ALWAYS,
    "⚠️ Provider authentication failed",
    "⚠️ The model provider",
    "⏱️ The model provider is rate-limiting",
    "⚠️ Session too large for the model's context window",
    "⚠️ Processing stopped:",
    "⚠️ Processing completed but no response was generated",
    "⚠️ Your message wasn't processed",
    "⚠️ Your message was interrupted before processing started",
    "⚠️ The model returned no response",
    "⚠️ Proxy ",
    "The request failed: ",
    "Sorry, I encountered an error (",
)
_REFUSALS = ("Hermes is at the active session limit (", "⏳ Gateway is ", "gateway.busy.")
"""Finals of a turn that Hermes did not begin; as notices (busy tips) they say nothing of failure."""
_TAILS = (
    "Try again or use /reset to start a fresh session.",
    "Your request was not processed. Send it again if you still want me to carry it out.",
    "Some actions may already have run; verify their effects before resending.",
)
NO_TEXT = "The agent's turn ended without an answer."
NOT_STARTED = "The agent could not start a turn for this question."


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What `on_session_end` said of a turn; `failed` is `None` where the version does not say."""

    completed: bool
    interrupted: bool
    failed: bool | None = None


def judged(text: str, *, seen: bool, end: TurnEnd | None, hooked: bool = False) -> Reply:
    """Say whether a final text is an answer or the words of a failure.

    `seen` is whether `pre_llm_call` told of the turn. Both versions skip `on_session_end` when the
    model's server fails, so a turn that was seen to begin and not to end has failed. `hooked` is
    whether it told of any turn of ours: then a turn that it did not tell of never had a model, and
    its text is Hermes' own (too many sessions, a stop). Where Hermes hands turns to another server
    it tells of none.
    """
    text = text.strip()
    if not text:
        return Reply(NO_TEXT, failure=True)
    if text.startswith(_ALWAYS):
        return Reply(text, failure=True)
    if end is None:
        refused = text.startswith(_REFUSALS) or sounds_failed(text)
        return Reply(text, failure=seen or hooked or refused)
    if end.failed or end.interrupted:
        return Reply(text, failure=True)
    # A model may quote such a sentence in a turn that went well.
    return Reply(text, failure=not end.completed and sounds_failed(text))


def sounds_failed(text: str) -> bool:
    """Recognise the sentences with which Hermes speaks for a model that did not answer."""
    return text.startswith(_SENTENCES) or text.rstrip().endswith(_TAILS)
