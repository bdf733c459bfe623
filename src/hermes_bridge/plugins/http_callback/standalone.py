"""Delivery from a process without a gateway: `hermes send`, a cron run of its own.

The same outbox. When no gateway delivers for this home, this process does, for a short while; what
is left then is not lost: the next worker takes it.
"""

import asyncio
import contextlib
from typing import Any

from . import media
from .config import SettingsError
from .home import hermes_home
from .intake import Call
from .outbox import Outbox, Receipt
from .service import Service
from .store import OutboxUnavailable
from .targets import file_rules
from .worker import Worker

PATIENCE_S = 20.0


async def send(
    pconfig: Any,
    chat_id: str,
    message: str,
    *,
    thread_id: str | None = None,
    media_files: list[Any] | None = None,
    force_document: bool = False,
    **_: Any,
) -> dict[str, Any]:
    """Hermes' `standalone_sender_fn`: store, deliver if nobody else does, report."""
    try:
        service = Service(hermes_home(), getattr(pconfig, "extra", None))
    except SettingsError as error:
        return {"error": str(error)}
    try:
        rules = file_rules(chat_id, service.settings)
        items = [_describe(item, rules) for item in media_files or ()]
        metadata = {"thread_id": thread_id} if thread_id else {}
        call = Call(chat_id or "", message or "", metadata=metadata, attachments=tuple(items))
        receipt = await service.accept(call)
        if receipt.state in ("rejected", "dead"):
            return {"error": receipt.reason}
        return await _report(service, receipt)
    except OutboxUnavailable as error:
        return {"error": str(error)}
    finally:
        await asyncio.to_thread(service.desk.close)


def _describe(item: Any, rules: dict[str, Any]) -> dict[str, Any]:
    path = item[0] if isinstance(item, (tuple, list)) else item
    return media.of_file(str(path), "document", **rules)


async def _report(service: Service, receipt: Receipt) -> dict[str, Any]:
    await drain(service, PATIENCE_S)

    def look(outbox: Outbox, _custody: Any) -> Any:
        return outbox.db.execute(
            "SELECT state, reason FROM deliveries WHERE seq=?", (receipt.seq,)
        ).fetchone()

    state, reason = await asyncio.wrap_future(service.desk.submit(look))
    if state in ("dead", "rejected"):
        return {"error": reason}
    return {
        "success": True,
        "message_id": receipt.id,
        "queued": state != "delivered",
        "state": state,
    }


async def drain(service: Service, seconds: float) -> None:
    """Deliver what is due now, unless a gateway does; at most `seconds`."""
    worker = Worker(service.desk, lambda: service.settings)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await worker.run(until_idle=True)
