"""Live news for open pages: one stream of server-sent events each, all from one hub.

The hub watches the relay only while somebody looks (and a moment longer, so that a page that comes
back finds what it missed). What changed is gathered for a tenth of a second and encoded once for
all; a burst too large to send, or a reader too slow to take it, gets `gap`: fetch again.

    event: news  id: <process>.<n>   {now, rows, beats, agents?, store?, open}
    event: alive                     at least every ten seconds
    event: gap                       something was missed
    event: bye                       the relay is stopping
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.doors import ui_rows
from hermes_bridge.relay.doors.ui_reads import Reads
from hermes_bridge.relay.doors.ui_request import FRESH, Request
from hermes_bridge.relay.relay import Relay

MOST_LISTENERS = 100
_CUT = 4_000
_GATHER_S = 0.1
_LOOK_S = 1.0
_ALIVE_S = 10.0
_LINGER = 15
"""How many looks the hub goes on after the last reader left."""
_MOST_ROWS = 300
_REMEMBER = 64
_QUEUE = 8
_GAP = b"event: gap\ndata: {}\n\n"
_ALIVE = b"event: alive\ndata: {}\n\n"
_BYE = b"event: bye\ndata: {}\n\n"
_encode = msgspec.json.Encoder().encode


class Hub:
    """Gathers what changes and hands it to every listener."""

    def __init__(self, relay: Relay, reads: Reads) -> None:
        self._relay, self._reads = relay, reads
        self._epoch = relay.clock.now()
        self._count = 0
        self._past: deque[tuple[int, bytes]] = deque(maxlen=_REMEMBER)
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._rows: dict[str, Exchange] = {}
        self._beats: dict[str, Exchange] = {}
        self._burst = False
        self._changed = asyncio.Event()
        self._agents: list[ui_rows.Json] = []
        self._store: ui_rows.Json = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def serve(self, request: Request, still: Callable[[], bool]) -> None:
        """Stream to one page until it leaves; `still` says whether its reader may go on looking."""
        if self._closed or len(self._listeners) >= MOST_LISTENERS:
            await request.fail(503, "too many pages are open", "This page asks every few seconds.")
            return
        queue: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        last = request.headers.get(b"last-event-id", b"").decode("latin-1")
        for piece in self._since(last or request.query.get("after", "")):
            queue.put_nowait(piece)
        self._listeners.add(queue)
        self._begin()
        headers = [*FRESH, (b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        gone = asyncio.create_task(_gone(request, queue))
        try:
            await request.send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._stream(request, queue, still)
        finally:
            gone.cancel()
            self._listeners.discard(queue)

    async def _stream(
        self, request: Request, queue: asyncio.Queue[bytes], still: Callable[[], bool]
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(_ALIVE_S):
                    piece = await queue.get()
            except TimeoutError:
                piece = _ALIVE
            last = not piece or piece is _BYE or not still()
            await request.send({"type": "http.response.body", "body": piece, "more_body": not last})
            if last:
                return

    def close(self) -> None:
        """The relay stops: say so to every page."""
        self._closed = True
        for queue in self._listeners:
            _put(queue, _BYE)
        if self._task is not None:
            self._task.cancel()
        self._unwatch()

    def _since(self, last: str) -> list[bytes]:
        """Give what a page that comes back has missed; or where things stand, for a new one."""
        here = b"id: %d.%d\nevent: hello\ndata: {}\n\n" % (self._epoch, self._count)
        epoch, _, number = last.partition(".")
        if not last:
            return [here]
        if epoch != str(self._epoch) or not number.isdecimal() or len(number) > 15:
            return [_GAP, here]
        seen = int(number)
        missed = [piece for n, piece in self._past if n > seen]
        watched = self._task is not None and not self._task.done()
        if not watched or len(missed) != self._count - seen or len(missed) >= _QUEUE:
            return [_GAP, here]
        return missed or [_ALIVE]

    # Watching

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._past.clear()
            self._count += 1
            self._agents = ui_rows.agents(self._relay, self._relay.clock.now())
            self._store = self._reads.store()
            self._relay.watchers.append(self._watch)
            self._task = asyncio.create_task(self._run())

    def _unwatch(self) -> None:
        if self._watch in self._relay.watchers:
            self._relay.watchers.remove(self._watch)
        self._rows.clear()
        self._beats.clear()

    def _watch(self, what: str, exchange: Exchange) -> None:
        if what == "beat":
            self._beats[exchange.rid] = exchange
        elif len(self._rows) < _MOST_ROWS:
            self._rows[exchange.rid] = exchange
        else:
            self._burst = True
        if not self._changed.is_set():
            self._changed.set()

    async def _run(self) -> None:
        idle = 0
        try:
            while idle < _LINGER:
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
                    await asyncio.sleep(_GATHER_S)
                except TimeoutError:
                    idle = 0 if self._listeners else idle + 1
                self._changed.clear()
                self._tell()
        finally:
            self._unwatch()

    def _tell(self) -> None:
        news = self._news()
        if not news and not self._burst:
            return
        self._count += 1
        if self._burst:
            piece = b"id: %d.%d\n%b" % (self._epoch, self._count, _GAP)
            self._burst = False
        else:
            news |= {"now": self._relay.clock.now(), "open": len(self._relay.book)}
            piece = b"id: %d.%d\nevent: news\ndata: %b\n\n" % (
                self._epoch,
                self._count,
                _encode(news),
            )
        self._past.append((self._count, piece))
        for queue in self._listeners:
            _put(queue, piece)

    def _news(self) -> ui_rows.Json:
        rows, beats = self._rows, self._beats
        self._rows, self._beats = {}, {}
        news: ui_rows.Json = {}
        if rows:
            news["rows"] = [ui_rows.exchange(x, _CUT) for x in rows.values()]
        fresh = [ui_rows.beat(x) for x in beats.values() if x.rid not in rows and not x.ended]
        if fresh:
            news["beats"] = fresh[:_MOST_ROWS]
        agents = ui_rows.agents(self._relay, self._relay.clock.now())
        if agents != self._agents:
            news["agents"] = self._agents = agents
        store = self._reads.store()
        if (store["up"], store["lost"]) != (self._store["up"], self._store["lost"]):
            news["store"] = self._store = store
        return news


def _put(queue: asyncio.Queue[bytes], piece: bytes) -> None:
    """Hand over a piece; a reader that cannot keep up loses what waits and is told so."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(_GAP)
    queue.put_nowait(piece)


async def _gone(request: Request, queue: asyncio.Queue[bytes]) -> None:
    """Wait until the page leaves, then end its stream."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    _put(queue, b"")
