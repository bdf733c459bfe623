"""AgentsChat's REST side: pooled, bounded in time and size, honest about what may have happened."""

import asyncio
import email.utils
import time
from collections.abc import Mapping
from secrets import token_hex
from string import punctuation
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import AUDIO, PHOTO, Attachment, Message
from hermes_bridge.connector.platforms.agentschat import wire
from hermes_bridge.connector.platforms.agentschat.http import (
    Answer,
    Broken,
    Pool,
    TooLarge,
    Unreachable,
)
from hermes_bridge.connector.platforms.base import (
    HTTP_STATUS,
    NETWORK,
    OPERATION,
    TIMEOUT,
    File,
    PlatformError,
    Post,
    Settings,
)

_T = TypeVar("_T")
_MAX_ANSWER = 64 * 1024 * 1024
MAX_FILE = 25 * 1024 * 1024
_LONGEST_WAIT_S = 15.0
_TRIES = 3


class Api:
    """Calls of one AgentsChat server. Every failure is a `PlatformError`."""

    def __init__(self, settings: Settings) -> None:
        self._base = settings.api_url.removesuffix("/")
        self._timeout_s = settings.operation_timeout_ms / 1000
        self._pool = Pool(self._base)
        self._path = urlsplit(self._base).path

    def close(self) -> None:
        """Let go of the pooled connections."""
        self._pool.close()

    async def channels(self, identity: Identity) -> list[wire.Channel]:
        """Give the channels that an account is a member of."""
        body = await self._get(identity, "/api/channels/mine")
        found = _read(wire.memberships, body)
        return found if isinstance(found, list) else found.channels

    async def chat_info(self, identity: Identity, channel: str) -> tuple[str, str]:
        """Give a channel's name and type; a channel that is not shown is named by its id."""
        kind = "dm" if channel.startswith(wire.DM_PREFIX) else "group"
        try:
            body = await self._get(identity, f"/api/channels/{_part(channel)}")
        except PlatformError as error:
            if error.code != HTTP_STATUS:
                raise
            return channel, kind
        return wire.text(_read(wire.channels, body).name) or channel, kind

    async def history(
        self, identity: Identity, channel: str, *, after: str, limit: int
    ) -> list[Message]:
        """Give rows of a channel: after a timestamp, or the newest."""
        query = {"limit": str(limit)} | ({"after": after} if after else {})
        path = f"/api/channels/{_part(channel)}/messages"
        page = _read(wire.pages, await self._get(identity, path, query))
        found = (wire.message_of(row, channel) for row in page.messages)
        return [each for each in found if each is not None]

    async def loops(self, identity: Identity) -> list[wire.Loop]:
        """Give the agent's own loops."""
        return _read(wire.loops, await self._get(identity, "/api/loops/mine")).loops

    async def post(self, identity: Identity, post: Post) -> str:
        """Say something; give the message's id."""
        body = wire.post(identity.agent_id, post.text, post.parent, post.attachments)
        path = f"/api/channels/{_part(post.channel)}/messages"
        answer = await self._call("POST", identity, path, data=body, acts=True)
        try:
            return wire.text(wire.created.decode(answer).id)
        except msgspec.DecodeError:
            raise _unknown() from None

    async def upload(self, identity: Identity, kind: str, file: File) -> Attachment:
        """Store a picture or a sound."""
        if kind not in (PHOTO, AUDIO):
            raise PlatformError(
                f"agentschat takes pictures and sounds, not a {kind}",
                code=OPERATION,
                ambiguous=False,
            )
        body, kind_of_body = _form(file)
        answer = await self._call(
            "POST", identity, "/api/upload", data=body, content_type=kind_of_body
        )
        url = wire.text(_read(wire.uploads, answer).url)
        if not url:
            raise PlatformError("agentschat gave no file", code=OPERATION, ambiguous=False)
        return Attachment(kind, url, file.mime, len(file.body), file.name)

    async def fetch(self, identity: Identity, attachment: Attachment) -> File:
        """Get a file from this server, and from no other."""
        there, here = urlsplit(attachment.ref), urlsplit(self._base)
        if there.netloc and (there.scheme, there.netloc) != (here.scheme, here.netloc):
            raise PlatformError("the file is not on agentschat", code=OPERATION, ambiguous=False)
        path = there.path + (f"?{there.query}" if there.query else "")
        if not path.startswith("/") or "\\" in path:
            raise PlatformError("the file has no valid place", code=OPERATION, ambiguous=False)
        body = await self._call("GET", identity, quote(path, safe=punctuation), limit=MAX_FILE)
        return File(body, attachment.mime or "application/octet-stream", attachment.name)

    async def _get(
        self, identity: Identity, path: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        return await self._call("GET", identity, f"{path}?{urlencode(query)}" if query else path)

    async def _call(
        self,
        method: str,
        identity: Identity,
        target: str,
        *,
        data: bytes = b"",
        content_type: str = "application/json",
        acts: bool = False,
        limit: int = _MAX_ANSWER,
    ) -> bytes:
        """Call, and call again after 429 as the server asks. `acts`: doubt must be reported."""
        head = f"accept: application/json\r\nauthorization: Bearer {_header(identity.token)}\r\n"
        if data:
            head += f"content-type: {content_type}\r\n"
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_s
        for attempt in range(_TRIES):
            answer = await self._once(method, target, head, data, deadline, acts=acts, limit=limit)
            if 200 <= answer.status < 300:
                return answer.body
            wait = _retry_after(answer)
            last = attempt == _TRIES - 1
            if answer.status != 429 or last or wait > min(deadline - clock(), _LONGEST_WAIT_S):
                raise _refused(answer.status, acts=acts)
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt either returns or raises")

    async def _once(
        self,
        method: str,
        target: str,
        head: str,
        data: bytes,
        deadline: float,
        *,
        acts: bool,
        limit: int,
    ) -> Answer:
        """Make one attempt; every failure of the network becomes a `PlatformError`."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.call(method, self._path + target, head, data, limit=limit)
        except Unreachable:
            raise PlatformError(
                "agentschat is unreachable; nothing was sent", code=NETWORK, ambiguous=False
            ) from None
        except TimeoutError:
            raise PlatformError(
                "agentschat timed out; outcome unknown", code=TIMEOUT, ambiguous=acts
            ) from None
        except TooLarge:
            raise PlatformError(
                "agentschat's answer is too large", code=OPERATION, ambiguous=True
            ) from None
        except Broken:
            raise PlatformError(
                "agentschat network failure; outcome unknown", code=NETWORK, ambiguous=acts
            ) from None


def _header(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise PlatformError(
            "the account's token has characters that no token can have; nothing was sent",
            code=OPERATION,
            ambiguous=False,
        )
    return value


def _form(file: File) -> tuple[bytes, str]:
    """Give a form with one file, and its content type."""
    boundary = token_hex(16)
    name = quote(file.name or "file", safe=" ()+,;=@[]{}~")
    mime = file.mime if file.mime.isascii() and file.mime.isprintable() else ""
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n'
        f"content-type: {mime or 'application/octet-stream'}\r\n\r\n"
    )
    return (
        head.encode() + file.body + f"\r\n--{boundary}--\r\n".encode(),
        f"multipart/form-data; boundary={boundary}",
    )


def _refused(status: int, *, acts: bool) -> PlatformError:
    if not 400 <= status < 600:
        return _unknown()
    return PlatformError(
        f"agentschat HTTP {status}",
        code=HTTP_STATUS,
        status=status,
        ambiguous=acts and status >= 500,
    )


def _unknown() -> PlatformError:
    return PlatformError(
        "platform operation failed; outcome unknown", code=OPERATION, ambiguous=True
    )


def _read(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        raise _unknown() from None


def _retry_after(answer: Answer) -> float:
    value = answer.headers.get(b"retry-after", b"1").decode("latin-1").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
        return max(0.0, at.timestamp() - time.time())  # noqa: TID251  an HTTP date is wall time
    except (ValueError, OverflowError):
        return 1.0


def _part(name: str) -> str:
    return quote(name, safe="")
