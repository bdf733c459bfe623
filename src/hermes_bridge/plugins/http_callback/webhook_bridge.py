"""The bridge to Hermes' webhook platform: what it knows and does not hand on.

Hermes keeps where a webhook's answer goes in memory only, and calls the platform it goes to without
the marks it had (final or not, which event). So its `send` is wrapped thinly: the wrapper tells our
adapter, through a context variable, and finds the way again after a restart. Nothing else changes;
where Hermes differs from what is expected, the wrapper stays out of the way.
"""

import asyncio
import functools
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from . import typing_signal
from .clock import now_ms
from .commons import shared
from .config import ALIAS, PLATFORM, Settings
from .custody import DAY_MS
from .home import process_home
from .intake import EPOCH, Origin
from .payload import metadata_from
from .service import Service, running, service_for
from .targets import BadTarget, resolve

logger = logging.getLogger(__name__)

NAMES = (PLATFORM, ALIAS)
ROUTE_MS = 2 * DAY_MS
MOST_FAILED_TURNS = 256
_MARK = "_http_callback_wrapped"
_MEDIA = (
    "send_document",
    "send_image_file",
    "send_voice",
    "send_video",
    "send_image",
    "send_animation",
)


@dataclass(frozen=True)
class Scene:
    """What the webhook platform knows about the call that our adapter is in."""

    origin: Origin | None = None
    url: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


_NOBODY = Scene()
_failed_turns: dict[str, None] = shared("failed turns", dict)
_scene: ContextVar[Scene] = shared(
    "scene", lambda: ContextVar("http_callback_scene", default=_NOBODY)
)


def scene() -> Scene:
    """Give the present scene; an empty one outside the webhook platform."""
    return _scene.get()


def install(runner: Any) -> bool:
    """Wrap the webhook platform of this Hermes; False when it is not as expected."""
    wrapped = False
    try:
        from gateway.platforms.webhook import WebhookAdapter
    except ImportError:
        return False
    for kind in {WebhookAdapter, *map(type, _webhook_adapters(runner))}:
        wrapped = wrap(kind) or wrapped
    return wrapped


def _webhook_adapters(runner: Any) -> list[Any]:
    adapters = getattr(runner, "adapters", None)
    if not isinstance(adapters, dict):
        return []
    return [item for key, item in adapters.items() if getattr(key, "value", key) == "webhook"]


def wrap(kind: type) -> bool:
    """Wrap one webhook adapter class, once."""
    if getattr(kind.__dict__.get("send"), _MARK, False):
        return True
    if not callable(getattr(kind, "send", None)) or not hasattr(kind, "_deliver_cross_platform"):
        return False
    if "send" in kind.__dict__:
        _replace(kind, "send", _wrapped_send)
    if "_direct_deliver" in kind.__dict__:
        _replace(kind, "_direct_deliver", _wrapped_direct)
    for name in _MEDIA:
        if callable(getattr(kind, name, None)):
            _replace(kind, name, functools.partial(_wrapped_media, name))
    if callable(getattr(kind, "send_multiple_images", None)):
        _replace(
            kind, "send_multiple_images", functools.partial(_wrapped_media, "send_multiple_images")
        )
    return True


def _replace(kind: type, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(kind, name)
    if getattr(original, _MARK, False):
        return
    wrapper = make(original)
    functools.update_wrapper(wrapper, original)
    setattr(wrapper, _MARK, True)
    setattr(kind, name, wrapper)


def _wrapped_send(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def send(
        self: Any,
        chat_id: str,
        content: str,
        reply_to: Any = None,
        metadata: Any = None,
        **more: Any,
    ) -> Any:
        delivery = await _delivery(self, chat_id)
        if delivery is None:
            return await original(self, chat_id, content, reply_to, metadata, **more)
        notify = bool(isinstance(metadata, dict) and metadata.get("notify"))
        recorded = not notify and await _recorded(chat_id, content)
        here = _scene_of(delivery, chat_id, reply_to, notify=notify, recorded=recorded)
        token = _scene.set(here)
        try:
            return await original(self, chat_id, content, reply_to, metadata, **more)
        finally:
            _scene.reset(token)
            if notify:
                typing_signal.off(chat_id)

    return send


def _scene_of(
    delivery: dict[str, Any], chat_id: str, reply_to: Any, *, notify: bool, recorded: bool = False
) -> Scene:
    extra = delivery.get("deliver_extra")
    extra = extra if isinstance(extra, dict) else {}
    event = str(reply_to) if reply_to else None
    failed = notify and chat_id in _failed_turns
    return Scene(Origin(chat_id, event, notify, recorded, failed), url=str(extra.get("url") or ""))


def _wrapped_direct(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def _direct_deliver(
        self: Any, content: str, delivery: dict[str, Any], **more: Any
    ) -> Any:
        if not _is_ours(delivery):
            return await original(self, content, delivery, **more)
        service = _service_of(self, delivery)
        # `deliver_only` has no event and so no stored route: the facts ride along.
        facts = learn(delivery, delivery.get("payload"), service.settings) if service else {}
        token = _scene.set(Scene(None, _alias_url(delivery), facts))
        try:
            return await original(self, content, delivery, **more)
        finally:
            _scene.reset(token)

    return _direct_deliver


def _alias_url(delivery: dict[str, Any]) -> str:
    extra = delivery.get("deliver_extra")
    return str(extra.get("url") or "") if isinstance(extra, dict) else ""


def _wrapped_media(
    name: str, original: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def send_media(self: Any, chat_id: str, *args: Any, **options: Any) -> Any:
        delivery = await _delivery(self, chat_id)
        adapter = None if delivery is None else _our_adapter(self, delivery)
        if delivery is None or adapter is None:
            return await original(self, chat_id, *args, **options)
        metadata = options.pop("metadata", None)
        notify = bool(isinstance(metadata, dict) and metadata.get("notify"))
        token = _scene.set(_scene_of(delivery, chat_id, None, notify=notify))
        extra = delivery.get("deliver_extra") or {}
        thread = extra.get("message_thread_id") or extra.get("thread_id")
        options["metadata"] = {"thread_id": thread} if thread else None
        url = str(extra.get("chat_id") or extra.get("url") or "")
        try:
            return await getattr(adapter, name)(url, *args, **options)
        finally:
            _scene.reset(token)

    return send_media


def _our_adapter(webhook: Any, delivery: dict[str, Any]) -> Any:
    """Give the adapter that an answer goes through: with several profiles, that of its own."""
    runner = getattr(webhook, "gateway_runner", None)
    find = getattr(runner, "_authorization_adapter", None)
    if callable(find) and delivery.get("profile"):
        from gateway.config import Platform

        return find(Platform(delivery["deliver"]), delivery["profile"])
    adapters = getattr(runner, "adapters", None)
    if not isinstance(adapters, dict):
        return None
    for key, adapter in adapters.items():
        if getattr(key, "value", key) == delivery.get("deliver"):
            return adapter
    return None


def _service_of(webhook: Any, delivery: dict[str, Any]) -> Service | None:
    """Give the service that stores a delivery's answer, whichever home is being served now."""
    try:
        found: Service | None = getattr(_our_adapter(webhook, delivery), "_service", None)
    except Exception:  # noqa: BLE001 - another Hermes: its own home will do
        found = None
    return found or _service()


def _is_ours(delivery: Any) -> bool:
    return isinstance(delivery, dict) and delivery.get("deliver") in NAMES


async def _delivery(webhook: Any, chat_id: str) -> dict[str, Any] | None:
    """Give where a chat's answer goes, when it goes to us; found again after a restart."""
    known = getattr(webhook, "_delivery_info", None)
    if not isinstance(known, dict):
        return None
    delivery = known.get(chat_id)
    if delivery is None and (found := await _stored_way(chat_id)) is not None:
        delivery = known[chat_id] = found
        _date(webhook, chat_id)
        logger.info("http_callback: the way of an answer was found again after a restart")
    return delivery if _is_ours(delivery) else None


async def _stored_way(chat_id: str) -> dict[str, Any] | None:
    """Look a chat's delivery up in every home that this process serves."""
    for service in running() or filter(None, [_service()]):
        future = service.desk.submit(lambda outbox, custody: custody.route(chat_id))
        try:
            found = await asyncio.wrap_future(future)
        except Exception:
            logger.exception("http_callback: the way of %s could not be looked up", chat_id)
            continue
        if found is not None:
            return found[0]
    return None


def _date(webhook: Any, chat_id: str) -> None:
    # Hermes prunes by these; without them the entry would stay for ever.
    created = getattr(webhook, "_delivery_info_created", None)
    order = getattr(webhook, "_delivery_info_order", None)
    at = time.time()
    if isinstance(created, dict):
        created[chat_id] = at
    if order is not None and hasattr(order, "append"):
        order.append((at, chat_id))


async def _recorded(chat_id: str, content: str) -> bool:
    """Tell whether Hermes' delivery ledger holds this text as a final answer (after a restart)."""
    path = process_home() / "state.db"

    def look() -> bool:
        try:
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)
        except sqlite3.Error:
            return False
        try:
            return bool(
                db.execute(
                    "SELECT 1 FROM delivery_obligations WHERE chat_id=? AND content=? LIMIT 1",
                    (chat_id, content),
                ).fetchone()
            )
        except sqlite3.Error:
            return False
        finally:
            db.close()

    return await asyncio.to_thread(look)


def _tell_if_lost(saved: "Future[None]") -> None:
    if (error := saved.exception()) is not None:
        logger.warning("http_callback: a restart would lose the way of an answer: %s", error)


def _service() -> Service | None:
    try:
        return service_for()
    except Exception:
        logger.exception("http_callback: this home's settings cannot be used")
        return None


def learn(delivery: dict[str, Any], payload: Any, settings: Settings) -> dict[str, Any]:
    """Take from an inbound payload what the answer will need."""
    extra = delivery.get("deliver_extra")
    extra = extra if isinstance(extra, dict) else {}
    target = str(extra.get("chat_id") or extra.get("url") or "")
    try:
        rules = resolve(target, settings).endpoint.metadata_from
    except BadTarget:
        rules = {}
    found: dict[str, Any] = {"metadata": metadata_from(rules, payload)}
    for key in ("route", "profile"):
        if isinstance(delivery.get(key), str):
            found[key] = delivery[key]
    return found


def after_turn(failed: Any = None, **_: Any) -> None:
    """Hook `on_session_end`: remember that a turn failed (Hermes 0.22 says so, 0.19 does not)."""
    try:
        from gateway.session_context import get_session_env
    except ImportError:
        return
    chat = str(get_session_env("HERMES_SESSION_CHAT_ID", "") or "")
    if not chat:
        return
    if failed is True:
        if len(_failed_turns) >= MOST_FAILED_TURNS:
            _failed_turns.pop(next(iter(_failed_turns)))
        _failed_turns[chat] = None
    else:
        _failed_turns.pop(chat, None)


def before_dispatch(event: Any = None, gateway: Any = None, **_: Any) -> None:
    """Hook `pre_gateway_dispatch`: remember where the answer of a webhook event goes."""
    source = getattr(event, "source", None)
    if getattr(getattr(source, "platform", None), "value", None) != "webhook":
        return
    chat = str(getattr(source, "chat_id", ""))
    for webhook in _webhook_adapters(gateway):
        wrap(type(webhook))
        delivery = getattr(webhook, "_delivery_info", {}).get(chat)
        if isinstance(delivery, dict) and _is_ours(delivery):
            _remember(webhook, event, source, chat, dict(delivery))
            return


def _remember(webhook: Any, event: Any, source: Any, chat: str, delivery: dict[str, Any]) -> None:
    service = _service_of(webhook, delivery)
    if service is None:
        return
    facts = learn(delivery, getattr(event, "raw_message", None), service.settings)
    facts.setdefault("route", str(getattr(source, "chat_name", "")).removeprefix("webhook/"))
    facts["delivery_id"] = str(getattr(event, "message_id", "") or "")
    kept = {key: delivery[key] for key in delivery if key != "payload"}
    saved = service.desk.submit(
        lambda outbox, custody: custody.save_route(chat, kept, facts, EPOCH, now_ms() + ROUTE_MS)
    )
    saved.add_done_callback(_tell_if_lost)
    typing_signal.on(service, chat, delivery)
