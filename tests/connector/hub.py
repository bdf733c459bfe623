"""An AgentsChat hub in the test process: sockets, REST, files, and faults to order.

It is written from the platform's protocol, not from the connector: what it answers, in which
order, and what it refuses is the platform's behaviour. `faults` makes it behave badly.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web


@dataclass
class Faults:
    """What goes wrong, until it is set back."""

    post_status: int | None = None
    post_headers: dict[str, str] = field(default_factory=dict)
    post_hangs: bool = False
    post_gate: asyncio.Event | None = None
    post_cut: bool = False
    history_status: int | None = None
    history_gate: asyncio.Event | None = None
    mine_status: int | None = None
    mute: bool = False
    auth: str = ""  # "refuse", "silent", "error-open"
    no_push: bool = False


@dataclass
class Room:
    """A channel."""

    id: str
    members: set[str]
    name: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "direct" if self.id.startswith("dm-") else "group"


class Socket:
    """One client of the hub."""

    def __init__(self, ws: web.WebSocketResponse) -> None:
        self.ws = ws
        self.agent = ""
        self.rooms: set[str] = set()


class Hub:
    """Accounts by token, rooms, sockets; everything that happened, to look at."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.rooms: dict[str, Room] = {}
        self.sockets: list[Socket] = []
        self.faults = Faults()
        self.posts: list[dict[str, Any]] = []
        self.typed: list[dict[str, Any]] = []
        self.logins: list[dict[str, Any]] = []
        self.loops: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, tuple[bytes, str]] = {}
        self.reactions: dict[str, dict[str, list[str]]] = {}
        self.calls: Counter[str] = Counter()
        self.news = asyncio.Condition()
        self.port = 0
        self._numbers = itertools.count(1)
        self._clock = datetime.now(UTC)

    # -- set-up and what people do ---------------------------------------------------------

    def account(self, agent: str, token: str) -> None:
        self.tokens[token] = agent

    def room(self, room_id: str, *members: str) -> Room:
        self.rooms[room_id] = Room(room_id, set(members), room_id)
        return self.rooms[room_id]

    def at(self) -> str:
        self._clock += timedelta(milliseconds=250)
        return (
            self._clock.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self._clock.microsecond // 1000:03d}Z"
        )

    def record(self, room_id: str, sender: str, content: str, **more: Any) -> dict[str, Any]:
        """Put a message into a room without telling anybody."""
        row = {
            "id": f"m{next(self._numbers)}",
            "channel_id": room_id,
            "sender_id": sender,
            "sender_name": sender.title(),
            "sender_type": "agent" if sender in self.tokens.values() else "human",
            "content": content,
            "content_type": "text",
            "timestamp": self.at(),
            **more,
        }
        self.rooms[room_id].rows.append(row)
        return row

    async def say(self, room_id: str, sender: str, content: str, **more: Any) -> dict[str, Any]:
        """Somebody says something."""
        kind = more.pop("type", "message")
        row = self.record(room_id, sender, content, **more)
        if not self.faults.no_push:
            await self.push(room_id, {"type": kind, **row})
        return row

    async def push(self, room_id: str, frame: dict[str, Any]) -> None:
        text = json.dumps(frame)
        for socket in list(self.sockets):
            if room_id in socket.rooms and not socket.ws.closed:
                try:
                    await socket.ws.send_str(text)
                except (ConnectionError, RuntimeError):
                    continue

    async def frame(self, agent: str, frame: dict[str, Any]) -> None:
        for socket in list(self.sockets):
            if socket.agent == agent:
                await socket.ws.send_json(frame)

    async def kick(self, agent: str) -> None:
        for socket in list(self.sockets):
            if socket.agent == agent:
                await socket.ws.close(code=WSCloseCode.SERVICE_RESTART)

    async def until(self, condition: Any, timeout: float = 30.0) -> None:
        """Wait until something has happened here."""
        async with asyncio.timeout(timeout), self.news:
            await self.news.wait_for(condition)

    def listens(self, agent: str, room_id: str) -> bool:
        return any(each.agent == agent and room_id in each.rooms for each in self.sockets)

    async def _tell(self) -> None:
        async with self.news:
            self.news.notify_all()

    # -- the server ---------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator["Hub"]:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(
            [
                web.get("/ws", self._ws),
                web.get("/api/channels/mine", self._mine),
                web.get("/api/channels/{room}", self._room),
                web.get("/api/channels/{room}/messages", self._history),
                web.post("/api/channels/{room}/messages", self._post),
                web.get("/api/loops/mine", self._loops),
                web.post("/api/upload", self._upload),
                web.get("/api/file/uploads/{name}", self._file),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            for socket in list(self.sockets):
                await socket.ws.close()
            await runner.cleanup()

    async def _ws(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=4 << 20)
        await ws.prepare(request)
        socket = Socket(ws)
        self.sockets.append(socket)
        try:
            async for message in ws:
                if message.type is WSMsgType.TEXT:
                    await self._heard(socket, json.loads(message.data))
                    await self._tell()
        finally:
            self.sockets.remove(socket)
            await self._tell()
        return ws

    async def _heard(self, socket: Socket, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        self.calls[kind] += 1
        if kind == "auth":
            await self._login(socket, frame)
        elif kind == "ping":
            if not self.faults.mute:
                await socket.ws.send_json({"type": "pong", "timestamp": self.at()})
        elif not socket.agent:
            await socket.ws.send_json({"type": "error", "code": 401, "message": "log in first"})
        elif kind == "join_channel":
            room = self.rooms.get(frame["channel_id"])
            if room is not None and socket.agent in room.members:
                socket.rooms.add(room.id)
        elif kind == "typing":
            self.typed.append(frame)
        else:
            await self._change(socket, kind, frame)

    async def _login(self, socket: Socket, frame: dict[str, Any]) -> None:
        self.logins.append(frame)
        if self.faults.auth == "silent":
            return
        wrong = self.tokens.get(frame["token"]) != frame["agent_id"]
        if wrong or self.faults.auth:
            await socket.ws.send_json({"type": "error", "code": 401, "message": "bad token"})
            if self.faults.auth != "error-open":
                await socket.ws.close(code=4001)
            return
        socket.agent = frame["agent_id"]
        await socket.ws.send_json({"type": "auth_ok", "agent_id": socket.agent, "session_id": "s"})

    async def _change(self, socket: Socket, kind: str, frame: dict[str, Any]) -> None:
        """Edits, deletions, reactions: no answer; the broadcast is the proof."""
        room = self.rooms[frame["channel_id"]]
        row = next((each for each in room.rows if each["id"] == frame["message_id"]), None)
        if row is None or (kind != "reaction" and row["sender_id"] != socket.agent):
            await socket.ws.send_json({"type": "error", "code": 404, "message": "no such message"})
        elif kind == "edit_message":
            row["content"] = frame["new_content"]
            told = {"new_content": row["content"], "edited_at": self.at()}
            await self._changed(room, "message_edited", row["id"], told)
        elif kind == "delete_message":
            room.rows.remove(row)
            await self._changed(room, "message_deleted", row["id"], {})
        elif kind == "reaction":
            who = self.reactions.setdefault(row["id"], {}).setdefault(frame["emoji"], [])
            if frame["action"] == "remove":
                who.remove(socket.agent)
            else:
                who.append(socket.agent)
            told = {"reactions": self.reactions[row["id"]]}
            await self._changed(room, "reaction_update", row["id"], told)

    async def _changed(self, room: Room, kind: str, message: str, more: dict[str, Any]) -> None:
        await self.push(
            room.id, {"type": kind, "message_id": message, "channel_id": room.id} | more
        )

    # -- REST ------------------------------------------------------------------------------------

    def _who(self, request: web.Request) -> str:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            raise web.HTTPUnauthorized
        return self.tokens[token]

    def _inside(self, request: web.Request) -> tuple[str, Room]:
        who = self._who(request)
        room = self.rooms.get(request.match_info["room"])
        if room is None:
            raise web.HTTPNotFound
        if who not in room.members:
            raise web.HTTPForbidden
        return who, room

    async def _mine(self, request: web.Request) -> web.Response:
        self.calls["mine"] += 1
        if self.faults.mine_status:
            return web.Response(status=self.faults.mine_status)
        who = self._who(request)
        rooms = [each for each in self.rooms.values() if who in each.members]
        rows = [{"id": each.id, "name": each.name, "type": each.kind} for each in rooms]
        return web.json_response({"channels": rows})

    async def _room(self, request: web.Request) -> web.Response:
        _, room = self._inside(request)
        return web.json_response({"id": room.id, "name": room.name, "type": room.kind})

    async def _history(self, request: web.Request) -> web.Response:
        self.calls["history"] += 1
        await self._tell()
        if self.faults.history_gate is not None:
            await self.faults.history_gate.wait()
        if self.faults.history_status:
            return web.Response(status=self.faults.history_status)
        _, room = self._inside(request)
        limit = min(100, int(request.query.get("limit", "50")))
        after = request.query.get("after")
        rows = room.rows
        if after is not None:
            rows = [each for each in rows if each["timestamp"] > after][:limit]
        return web.json_response({"messages": rows[-limit:]})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.calls["post"] += 1
        body = await request.json()
        await self._tell()
        if self.faults.post_gate is not None:
            await self.faults.post_gate.wait()
        if self.faults.post_hangs:
            await asyncio.sleep(3600)
        if self.faults.post_status:
            headers = self.faults.post_headers
            return web.Response(status=self.faults.post_status, headers=headers, text="private")
        who, room = self._inside(request)
        if body["sender_id"] != who or "content" not in body:
            raise web.HTTPForbidden
        more = {key: body[key] for key in ("parent_id", "attachments") if key in body}
        row = self.record(room.id, who, body["content"], **more)
        self.posts.append({"by": who, **row})
        await self.push(room.id, {"type": "message", **row})
        await self._tell()
        if self.faults.post_cut and request.transport is not None:
            request.transport.close()
        return web.json_response(row, status=201)

    async def _loops(self, request: web.Request) -> web.Response:
        return web.json_response({"loops": self.loops.get(self._who(request), [])})

    async def _upload(self, request: web.Request) -> web.Response:
        self._who(request)
        part = await (await request.multipart()).next()
        assert part is not None
        mime = part.headers.get("Content-Type", "")
        if not mime.startswith(("image/", "audio/")):
            raise web.HTTPUnsupportedMediaType
        body = bytes(await part.read())  # type: ignore[union-attr]
        name = f"f{next(self._numbers)}"
        self.files[name] = (body, mime)
        url = f"/api/file/uploads/{name}"
        return web.json_response({"url": url, "type": mime.split("/")[0], "size": len(body)})

    async def _file(self, request: web.Request) -> web.Response:
        self._who(request)
        body, mime = self.files[request.match_info["name"]]
        return web.Response(body=body, content_type=mime)
