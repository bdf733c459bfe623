"""What `send()` does: sort, find the receiver, serialise once, one durable insert, a receipt.

Nothing here waits for a receiver. The event loop of the caller does not matter.
"""

import asyncio
import hashlib
import logging
import secrets
from dataclasses import dataclass, field
from typing import Any

from .classify import Circumstance, Sorted, sort
from .clock import now_ms, wall_seconds
from .commons import shared
from .config import Endpoint, Settings
from .custody import Custody
from .desk import Desk
from .form import content_type, join
from .media import parted
from .outbox import JSON, Draft, Outbox, Receipt
from .payload import Answer, body, public_metadata
from .targets import BadTarget, Target, conversation, lane, resolve, safe

logger = logging.getLogger(__name__)

EPOCH = shared("epoch", lambda: secrets.token_hex(8))
"""Names this process: what an earlier one answered is not answered again."""


@dataclass(frozen=True)
class Origin:
    """Where a text comes from, when it comes from the webhook platform."""

    chat: str
    reply_to: str | None = None
    notify: bool = False
    recorded: bool = False
    turn_failed: bool = False


@dataclass(frozen=True)
class Call:
    """One call of `send()`, or of a media method (`attachments`)."""

    chat_id: str
    content: str
    reply_to: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    attachments: tuple[dict[str, Any], ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    kind: str = ""

    @property
    def thread_id(self) -> str:
        """Give the thread Hermes names, as a text."""
        return str(self.metadata.get("thread_id") or "")


def new_id() -> str:
    """Give a callback id: `msg_` and 24 random letters and digits."""
    return "msg_" + secrets.token_hex(12)


class Intake:
    """Turns calls into stored callbacks."""

    def __init__(self, desk: Desk, *, bridged: bool = True) -> None:
        """`bridged`: whether the webhook platform's marks can be seen on this Hermes."""
        self._desk = desk
        self.bridged = bridged
        self._failed: dict[str, str] = {}

    async def accept(self, call: Call, settings: Settings) -> Receipt:
        """Store a callback durably.

        A target that cannot be used gives a receipt in state `rejected`; a text that is no answer
        one in state `suppressed`.

        Raises:
            OutboxUnavailable: nothing was stored; the caller may try again.
        """
        sorted_ = self._sort(call)
        key = call.origin.chat if call.origin else call.chat_id
        plan = _Plan(call, sorted_, settings)
        future = self._desk.submit(plan.store, durable=True)
        try:
            receipt = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            raise
        except Exception:
            self._remember(key, sorted_.content)
            raise
        self._failed.pop(key, None)
        _log(receipt, call)
        return receipt

    def _remember(self, key: str, content: str) -> None:
        if len(self._failed) >= 256:
            self._failed.pop(next(iter(self._failed)))
        self._failed[key] = content

    def _sort(self, call: Call) -> Sorted:
        if call.kind:
            return Sorted(call.kind, call.content)
        origin = call.origin
        how = Circumstance(
            webhook=origin is not None,
            notify=bool(origin and origin.notify),
            recorded=bool(origin and origin.recorded),
            turn_failed=bool(origin and origin.turn_failed),
            job=bool(call.metadata.get("job_id")),
            bridged=self.bridged,
            failed=self._failed.get(origin.chat if origin else call.chat_id, ""),
        )
        found = sort(call.content, how)
        if call.attachments and found.kind in ("final", "status", "direct"):
            return Sorted("media", found.content)
        return found


class _Plan:
    """One call on its way into a row; `store` runs on the desk's thread, in its transaction."""

    def __init__(self, call: Call, sorted_: Sorted, settings: Settings) -> None:
        self.call, self.sorted, self.settings = call, sorted_, settings
        self.id = new_id()
        self.facts = dict(call.facts)
        self.metadata = public_metadata(call.metadata) | self.facts.pop("metadata", {})
        self.delivery_id = (call.origin.reply_to if call.origin else call.reply_to) or ""
        self.last_epoch = EPOCH
        self.attachments, self.files = parted(call.attachments)

    def store(self, outbox: Outbox, custody: Custody) -> Receipt:
        """Write the row."""
        now = now_ms()
        self._recall(custody)
        try:
            target = resolve(self.call.chat_id, self.settings, self.call.thread_id)
        except BadTarget as error:
            return outbox.enqueue(self._rejected(str(error)), now)
        held_back = self._held_back(target, custody)
        draft = self._draft(target, held_back)
        return outbox.enqueue(draft, now)

    def _recall(self, custody: Custody) -> None:
        origin = self.call.origin
        known = custody.route(origin.chat) if origin else None
        if known is None:
            return
        _, facts, self.last_epoch = known
        # What was learnt from the inbound payload wins: it is the operator's own rule.
        self.metadata |= facts.pop("metadata", {})
        self.facts = {**facts, **self.facts}
        self.delivery_id = self.delivery_id or str(facts.get("delivery_id", ""))

    def _held_back(self, target: Target, custody: Custody) -> str:
        endpoint, kind = target.endpoint, self.sorted.kind
        if self.sorted.held_back:
            return self.sorted.held_back
        if kind == "status" and endpoint.statuses == "suppress":
            return "a status line, not an answer (setting `statuses`)"
        if kind == "error" and endpoint.errors == "suppress":
            return "an error of the agent, not an answer (setting `errors`)"
        if self.call.attachments and endpoint.profile == "captain":
            return "the captain profile takes no attachments"
        if not self.sorted.content.strip() and not self.call.attachments:
            return "there is no text to deliver"
        return self._answered(custody)

    def _answered(self, custody: Custody) -> str:
        origin = self.call.origin
        if (
            origin is None
            or not origin.notify
            or self.last_epoch == EPOCH
            or self.sorted.kind != "final"
        ):
            return ""
        # A turn that Hermes runs again after a restart, for an event that has its answer.
        first = custody.final_of(origin.chat)
        again = first and not self._stored_already(custody)
        return f"this event was answered before the restart ({first})" if again else ""

    def _stored_already(self, custody: Custody) -> bool:
        row = custody.outbox.db.execute(
            "SELECT 1 FROM deliveries WHERE chat=? AND origin=?", (self._chat, self._origin())
        ).fetchone()
        return row is not None

    @property
    def _chat(self) -> str:
        return self.call.origin.chat if self.call.origin else ""

    def _origin(self) -> str | None:
        if not self._chat:
            return None
        parts = [self._chat, self.delivery_id, self.sorted.kind, self.sorted.content]
        parts += [repr(item) for item in self.attachments]
        return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _answer(self, talk: str) -> Answer:
        facts = {
            **self.facts,
            "delivery_id": self.delivery_id,
            "conversation": talk,
            "job_id": self.call.metadata.get("job_id"),
        }
        return Answer(
            id=self.id,
            kind=self.sorted.kind,
            content=self.sorted.content,
            timestamp=wall_seconds(),
            reply_to=self.call.reply_to or self.delivery_id or None,
            metadata=self.metadata,
            facts=facts,
            attachments=self.attachments,
        )

    def _draft(self, target: Target, held_back: str) -> Draft:
        endpoint, talk = target.endpoint, conversation(target, self.metadata)
        answer = self._answer(talk)
        state, reason = ("suppressed", held_back) if held_back else ("pending", "")
        if (
            not held_back
            and len(answer.content.encode("utf-8", "replace")) > self.settings.max_body
        ):
            state, reason = (
                "dead",
                f"too large: over max_body_kib ({self.settings.max_body // 1024})",
            )
        return Draft(
            id=self.id,
            kind=self.sorted.kind,
            endpoint=target.key,
            url=target.place.url,
            lane=lane(target, talk, self._chat, self.id),
            make_body=lambda seq: self._body(answer, seq, endpoint),
            content_type=content_type(self.id) if self.files else JSON,
            max_age_ms=int(endpoint.policy.max_age * 1000),
            chat=self._chat,
            origin=self._origin(),
            epoch=EPOCH,
            state=state,
            reason=reason,
        )

    def _body(self, answer: Answer, seq: int, endpoint: Endpoint) -> bytes:
        whole = body(answer, seq, form=endpoint.form, with_hermes=endpoint.with_hermes)
        return join(self.id, whole, self.files) if self.files else whole

    def _rejected(self, reason: str) -> Draft:
        answer = Answer(self.id, self.sorted.kind, self.sorted.content, wall_seconds())
        return Draft(
            id=self.id,
            kind=self.sorted.kind,
            endpoint=safe(self.call.chat_id) or "(none)",
            url=self.call.chat_id[:4096],
            lane=self.id,
            make_body=lambda seq: body(answer, seq),
            max_age_ms=int(self.settings.default.policy.max_age * 1000),
            chat=self._chat,
            origin=self._origin(),
            epoch=EPOCH,
            state="rejected",
            reason=reason,
        )


def _log(receipt: Receipt, call: Call) -> None:
    if receipt.state == "rejected":
        logger.error("http_callback: %s is not delivered: %s", receipt.id, receipt.reason)
    elif receipt.state in ("dead", "parked"):
        logger.warning("http_callback: %s is %s: %s", receipt.id, receipt.state, receipt.reason)
    elif receipt.duplicate:
        logger.info("http_callback: stored before as %s", receipt.id)
    else:
        logger.info("http_callback: %s %s for %s", receipt.id, receipt.state, safe(call.chat_id))
