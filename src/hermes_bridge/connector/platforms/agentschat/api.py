"""AgentsChat's REST side: pooled, bounded in time and size, honest about what may have happened."""

import asyncio
import email.utils
import io
import time
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import AUDIO, PHOTO, Attachment, Message
from hermes_bridge.connector.platforms.agentschat import wire
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
_MAX_URLS = 5000
_JSON = {"Content-Type": "application/json"}


class Api:
    """Calls of one AgentsChat server. Every failure is a `PlatformError`."""

    def __init__(self, settings: Settings) -> None:
        self._base = settings.api_url.removesuffix("/")
        self._timeout_s = settings.operation_timeout_ms / 1000
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}

    async def close(self) -> None:
        """Let go of the pooled connections."""
        if self._session is not None:
            await self._session.close()

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
        answer = await self._call("POST", identity, path, data=body, headers=_JSON, acts=True)
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
        form = aiohttp.FormData()
        content = io.BytesIO(file.body)
        form.add_field("file", content, filename=file.name or "file", content_type=file.mime)
        answer = await self._call("POST", identity, "/api/upload", data=form)
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
        body = await self._call("GET", identity, path, limit=MAX_FILE)
        return File(body, attachment.mime or "application/octet-stream", attachment.name)

    async def _get(
        self, identity: Identity, path: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        return await self._call("GET", identity, path, query=query)

    async def _call(
        self,
        method: str,
        identity: Identity,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes | aiohttp.FormData | None = None,
        headers: Mapping[str, str] | None = None,
        acts: bool = False,
        limit: int = _MAX_ANSWER,
    ) -> bytes:
        """Call, and call again after 429 as the server asks. `acts`: doubt must be reported."""
        sent = {"Authorization": f"Bearer {identity.token}", **(headers or {})}
        url = self._url(path)
        session = self._open()
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        for attempt in range(_TRIES):
            try:
                async with session.request(
                    method, url, params=query, data=data, headers=sent,
                    allow_redirects=False,
                ) as answer:  # fmt: skip
                    if 200 <= answer.status < 300:
                        return await _body(answer, limit)
                    wait = _retry_after(answer)
                    last = attempt == _TRIES - 1 or isinstance(data, aiohttp.FormData)
                    left = deadline - asyncio.get_running_loop().time()
                    if answer.status != 429 or last or wait > min(left, _LONGEST_WAIT_S):
                        raise _refused(answer.status, acts=acts)
            except aiohttp.ClientConnectorError:
                raise PlatformError(
                    "agentschat is unreachable; nothing was sent", code=NETWORK, ambiguous=False
                ) from None
            except TimeoutError:
                raise PlatformError(
                    "agentschat timed out; outcome unknown", code=TIMEOUT, ambiguous=acts
                ) from None
            except aiohttp.ClientError:
                raise PlatformError(
                    "agentschat network failure; outcome unknown", code=NETWORK, ambiguous=acts
                ) from None
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt either returns or raises")

    def _url(self, path: str) -> URL:
        """Give the address of a path; taking one apart costs more than sending to it."""
        url = self._urls.get(path)
        if url is None:
            if len(self._urls) > _MAX_URLS:
                self._urls.clear()
            url = self._urls[path] = URL(self._base + path, encoded=True)
        return url

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=100, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=10),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "hermes-bridge", "Accept": "application/json"},
                skip_auto_headers=("Accept-Encoding",),
            )
        return self._session


async def _body(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    if answer.content_length is not None and answer.content_length <= limit:
        return await answer.read()
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > limit:
            raise PlatformError("agentschat's answer is too large", code=OPERATION, ambiguous=True)
    return bytes(body)


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


def _retry_after(answer: aiohttp.ClientResponse) -> float:
    value = answer.headers.get("Retry-After", "1").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
        return max(0.0, at.timestamp() - time.time())  # noqa: TID251  an HTTP date is wall time
    except (ValueError, OverflowError):
        return 1.0


def _part(name: str) -> str:
    return quote(name, safe="")
