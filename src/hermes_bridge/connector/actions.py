"""What gateways ask of a platform: who may, in which order, and one answer to every request.

Operations of one identity in one chat run one after the other, others side by side. Every
request is answered within 25 s, whatever the platform does: a gateway gives up at 30.
"""

import asyncio
import logging
import re
from collections import deque
from typing import Any, NamedTuple

import msgspec

from hermes_bridge.connector.core.guard import WITHHELD, is_approval_prompt
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Attachment
from hermes_bridge.connector.core.session import Known, Reused
from hermes_bridge.connector.core.split import split
from hermes_bridge.connector.link import Link
from hermes_bridge.connector.media import Kept
from hermes_bridge.connector.platforms.base import OPERATION, TIMEOUT, File, PlatformError, Post
from hermes_bridge.connector.state import State, logger
from hermes_bridge.contract import descriptor as ops, frames
from hermes_bridge.errors import PeerError
from hermes_bridge.ids import digest
from hermes_bridge.log import event

ANSWER_WITHIN_S = 25.0
_MAX_RUNNING = 1000
_MAX_RUNNING_BYTES = 16 * 1024 * 1024
_MAX_REQUEST_ID = 200
_PLAIN = re.compile(r"[^\w.:@/-]")
_MEDIA_PATH = re.compile(r"/relay/media/([A-Za-z0-9_-]{20,64})$")
_MEDIA_KINDS = {"image": "photo", "voice": "audio", "audio": "audio", "video": "video"}

Result = dict[str, Any]


class _Job(NamedTuple):
    link: Link
    bot_id: str
    frame: frames.Outbound
    action: frames.Action
    deadline: float


class Actions:
    """Performs the operations of all connections."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[tuple[str, str], deque[_Job]] = {}

    def submit(self, link: Link, frame: frames.Outbound) -> None:
        """A gateway asks for an operation."""
        state = self._state
        identity = link.session.speaker(frame.platform, frame.bot_id, state.table)
        if identity is None:
            named = shown(frame.bot_id) if isinstance(frame.bot_id, str) else "?"
            event(logger, "outbound.refused", logging.WARNING, link=link.number, bot=named)
            error = f"no usable identity for outbound (botId={named})"
            self._answer(link, frame, {"success": False, "error": error})
            return
        if not self._is_new(link, identity, frame):
            return
        try:
            action = frames.decode_action(frame.action)
        except PeerError as error:
            self._finish(link, identity.bot_id, frame, _failed(str(error)))
            return
        can = state.platform_of(identity).capabilities
        if action.op not in can.ops:
            self._finish(
                link, identity.bot_id, frame, _failed(f"unsupported op: {shown(action.op)}")
            )
        elif not action.chat_id:
            self._finish(link, identity.bot_id, frame, _failed(f"{action.op} needs a chat_id"))
        elif action.op == ops.TYPING:
            self._type(link, identity, frame, action)
        elif link.running >= _MAX_RUNNING or link.running_bytes > _MAX_RUNNING_BYTES:
            busy = _failed("too many operations of this connection are waiting; try again later")
            self._finish(link, identity.bot_id, frame, busy)
        else:
            self._enqueue(link, identity, frame, action)

    def _is_new(self, link: Link, identity: Identity, frame: frames.Outbound) -> bool:
        request = _request_id(frame)
        if request is None:
            return True
        asked = digest(bytes(frame.action))  # what is remembered must not grow with what was asked
        known = self._state.requests.begin(identity.bot_id, request, asked)
        if known is None:
            return True
        if isinstance(known, Known):
            self._answer(link, frame, known.result)
        elif isinstance(known, Reused):
            self._answer(link, frame, _failed("this requestId was used for another operation"))
        return False  # or it is running: its one answer is still to come

    def _type(
        self, link: Link, identity: Identity, frame: frames.Outbound, action: frames.Action
    ) -> None:
        state = self._state
        state.platform_of(identity).typing(identity, action.chat_id)
        state.inbox.typing(identity.bot_id, action.chat_id, state.clock.now())
        self._finish(link, identity.bot_id, frame, {"success": True})
        state.settle()

    def _enqueue(
        self, link: Link, identity: Identity, frame: frames.Outbound, action: frames.Action
    ) -> None:
        deadline = asyncio.get_running_loop().time() + ANSWER_WITHIN_S
        job = _Job(link, identity.bot_id, frame, action, deadline)
        link.running += 1
        link.running_bytes += len(bytes(frame.action))
        key = (identity.bot_id, action.chat_id)
        if action.note("notify") is True:
            self._state.inbox.answering(*key, self._state.clock.now())
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(job)
            return
        self._queues[key] = deque([job])
        self._state.spawn(self._drain(key))

    async def _drain(self, key: tuple[str, str]) -> None:
        queue = self._queues[key]
        while queue:
            job = queue[0]
            result = await self._run(job)
            queue.popleft()
            job.link.running -= 1
            job.link.running_bytes -= len(bytes(job.frame.action))
            self._finish(job.link, job.bot_id, job.frame, result)
            if job.action.note("notify") is True:
                self._state.inbox.final(job.bot_id, job.action.chat_id, self._state.clock.now())
                self._state.settle()
        del self._queues[key]

    async def _run(self, job: _Job) -> Result:
        """Perform one operation; whatever happens, there is a result."""
        if asyncio.get_running_loop().time() >= job.deadline:
            return _failed("an earlier operation in this chat timed out; this one was not tried")
        try:
            async with asyncio.timeout_at(job.deadline):
                return await self._perform(job)
        except TimeoutError:
            self._state.trouble(job.bot_id, "the platform did not answer in time")
            return _failed("the platform timed out; outcome unknown", code=TIMEOUT, ambiguous=True)
        except PlatformError as error:
            self._state.trouble(job.bot_id, str(error))
            self._state.counts["outbound.failed"] += 1
            event(logger, "outbound.failed", logging.WARNING, bot=job.bot_id, op=job.action.op,
                  code=error.code, status=error.status or "",
                  ambiguous=error.ambiguous)  # fmt: skip
            result = _failed(str(error), code=error.code, ambiguous=error.ambiguous)
            return result | ({"status": error.status} if error.status else {})
        except Exception as error:  # noqa: BLE001  a platform of somebody else's may raise anything
            event(logger, "outbound.bug", logging.ERROR, bot=job.bot_id, op=job.action.op,
                  cause=f"{type(error).__name__}: {error}"[:200])  # fmt: skip
            return _failed(
                "platform operation failed; outcome unknown", code=OPERATION, ambiguous=True
            )

    async def _perform(self, job: _Job) -> Result:
        identity = self._still(job)
        action, platform = job.action, self._state.platform_of(identity)
        if action.op == ops.SEND:
            return await self._send(job)
        if action.op == ops.MEDIA:
            return await self._send_media(job, identity)
        if action.op == ops.CHAT_INFO:
            name, kind = await platform.chat_info(identity, action.chat_id)
            info = {"name": name, "type": kind}
            return {"success": True, **info, "chat_info": info}
        if not action.message_id:
            return _failed(f"{action.op} needs a message_id")
        if action.op == ops.EDIT:
            return await self._edit(job, identity, action.message_id)
        if action.op == ops.DELETE:
            await platform.delete(identity, action.chat_id, action.message_id)
        else:
            await platform.react(
                identity, action.chat_id, action.message_id, action.emoji or "",
                remove=bool(action.remove),
            )  # fmt: skip
        return {"success": True, "message_id": action.message_id}

    def _still(self, job: _Job) -> Identity:
        """Give the identity again just before it acts: a reload may have taken it away."""
        frame = job.frame
        identity = job.link.session.speaker(frame.platform, frame.bot_id, self._state.table)
        if identity is None or identity.bot_id != job.bot_id:
            raise PlatformError(
                f"no usable identity for outbound (botId={shown(job.bot_id)})",
                code="no_identity",
                ambiguous=False,
            )
        return identity

    async def _send(self, job: _Job) -> Result:
        return await self._post(job, self._words(job), self._parent(job.action))

    async def _post(
        self, job: _Job, text: str, parent: str, files: tuple[Attachment, ...] = ()
    ) -> Result:
        chat = job.action.chat_id
        identity = self._still(job)
        limit = self._state.platform_of(identity).capabilities.max_message_length
        pieces = split(text, limit) or ([""] if files else [])
        if not pieces:
            return _failed("the message is empty; nothing was sent")
        last = ""
        for number, piece in enumerate(pieces):
            try:
                identity = self._still(job)
                post = Post(chat, piece, parent, files if number == 0 else ())
                last = await self._state.platform_of(identity).send(identity, post)
            except PlatformError as error:
                if number == 0:
                    raise
                raise PlatformError(
                    f"only {number} of {len(pieces)} parts were sent: {error}",
                    code=error.code,
                    status=error.status,
                    ambiguous=True,
                ) from None
        self._state.counts["outbound.sent"] += len(pieces)
        return {"success": True} | ({"message_id": last} if last else {})

    async def _edit(self, job: _Job, identity: Identity, message_id: str) -> Result:
        platform = self._state.platform_of(identity)
        pieces = split(self._words(job), platform.capabilities.max_message_length)
        if not pieces:
            return _failed("the message is empty; nothing was changed")
        await platform.edit(identity, job.action.chat_id, message_id, pieces[0])
        for piece in pieces[1:]:
            identity = self._still(job)
            message_id = await platform.send(identity, Post(job.action.chat_id, piece))
        return {"success": True, "message_id": message_id}

    async def _send_media(self, job: _Job, identity: Identity) -> Result:
        action = job.action
        kind = _MEDIA_KINDS.get(action.media_kind or "", "document")
        found = _MEDIA_PATH.search(action.source_url or "")
        item = self._state.shelf.find(found[1], identity.gateway_id) if found else None
        if not isinstance(item, Kept):
            return _failed("the file is not on this connector; upload it to /relay/media first",
                           code=OPERATION)  # fmt: skip
        body = await asyncio.to_thread(item.path.read_bytes)
        file = File(body, item.mime, action.filename or item.name)
        stored = await self._state.platform_of(identity).upload(identity, kind, file)
        return await self._post(job, self._words(job), self._parent(action), (stored,))

    def _words(self, job: _Job) -> str:
        """Give what an agent says, without secrets; an approval prompt only where its owner is."""
        state, action = self._state, job.action
        text = state.redactor.clean(action.content or "")
        identity = state.table.get(job.bot_id)
        if identity is not None and identity.owners and is_approval_prompt(text):
            author = state.authors.get((job.bot_id, action.chat_id))
            if author is None or not identity.owned_by(author):
                event(logger, "outbound.approval_withheld", logging.WARNING, bot=job.bot_id)
                return WITHHELD
        return text

    def _parent(self, action: frames.Action) -> str:
        """Give what a message answers: in a thread, the thread's root."""
        answered = action.reply_to or ""
        return self._state.threads.get((action.chat_id, answered)) or answered

    def _finish(self, link: Link, bot_id: str, frame: frames.Outbound, result: Result) -> None:
        request = _request_id(frame)
        if request is not None:
            self._state.requests.finish(bot_id, request, result)
        self._answer(link, frame, result)

    def _answer(self, link: Link, frame: frames.Outbound, result: Result) -> None:
        link.write(frames.outbound_result(frame.request_id, result))


def shown(value: object) -> str:
    """Give a peer's text in a form that is safe in a log line and an error."""
    return _PLAIN.sub("?", str(value))[:64] if value else "undefined"


def _request_id(frame: frames.Outbound) -> str | None:
    request = frame.request_id
    if request is msgspec.UNSET or not isinstance(request, str):
        return None
    return request if 0 < len(request) <= _MAX_REQUEST_ID else None


def _failed(error: str, *, code: str = "", ambiguous: bool | None = None) -> Result:
    result: Result = {"success": False, "error": error}
    if code:
        result["code"] = code
    if ambiguous is not None:
        result["ambiguous"] = ambiguous
    return result
