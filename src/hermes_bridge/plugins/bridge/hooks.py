"""What Hermes' hooks tell about turns: which turn works on which exchange, and how it ended.

Hooks run on the agents' threads; they only put entries into dictionaries, which is atomic.
"""

from collections import OrderedDict
from typing import Any

from .verdict import TurnEnd
from .wake import request_id_in

_KEPT = 2_000


class Turns:
    """The turns that hooks have seen."""

    def __init__(self) -> None:
        self._exchange_of: OrderedDict[str, str] = OrderedDict()
        self._seen: OrderedDict[str, TurnEnd | None] = OrderedDict()

    def pre_llm_call(self, **kw: Any) -> None:
        """A turn is about to ask its model: it is on."""
        request_id = request_id_in(str(kw.get("user_message") or ""))
        if request_id is not None and _is_ours(kw):
            for key in ("turn_id", "session_id"):
                if kw.get(key):
                    _put(self._exchange_of, str(kw[key]), request_id)
            _put(self._seen, request_id, None)

    def on_session_end(self, **kw: Any) -> None:
        """A turn ended (the hook's name notwithstanding)."""
        request_id = None
        for key in ("turn_id", "session_id"):
            request_id = request_id or self._exchange_of.get(str(kw.get(key)))
        if request_id is not None and _is_ours(kw):
            failed = kw.get("failed")
            end = TurnEnd(
                completed=bool(kw.get("completed")),
                interrupted=bool(kw.get("interrupted")),
                failed=None if failed is None else bool(failed),
            )
            _put(self._seen, request_id, end)

    @property
    def hooked(self) -> bool:
        """Whether Hermes tells of turns here: it has told of one."""
        return bool(self._seen)

    def seen(self, request_id: str) -> bool:
        """Whether this exchange's turn came as far as its model."""
        return request_id in self._seen

    def end(self, request_id: str) -> TurnEnd | None:
        """How the exchange's last turn ended, if it did."""
        return self._seen.get(request_id)


def _put(table: "OrderedDict[str, Any]", key: str, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > _KEPT:
        table.popitem(last=False)


def _is_ours(kw: dict[str, Any]) -> bool:
    platform = kw.get("platform")
    return getattr(platform, "value", platform) in (None, "", "hermes-bridge")
