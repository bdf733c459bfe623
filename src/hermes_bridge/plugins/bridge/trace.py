"""The trace that a question belongs to, in this bot's process (bridge.md, part 7).

The relay's context goes back with every call of the turn. Where something in this process makes
spans with OpenTelemetry, it becomes the turn's context there too, so that they join the trace. Who
does not use it pays nothing: it is never imported here, only found.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

Trace = dict[str, str]
_LONGEST = {"traceparent": 55, "tracestate": 512, "baggage": 8_192}

_log = logging.getLogger(__name__)


def taken(raw: object) -> Trace | None:
    """Read the `trace` of a wake: what could be a header, or nothing."""
    if not isinstance(raw, dict):
        return None
    found = {
        name: value
        for name, longest in _LONGEST.items()
        if isinstance(value := raw.get(name), str)
        and 0 < len(value) <= longest
        and value.isascii()
        and value.isprintable()
    }
    return found or None


def within(own: Trace | None, said: Trace | None) -> Trace | None:
    """Give the place of `said` in the trace `own`; another trace does not count."""
    if not own or not said:
        return own or said
    there, here = own.get("traceparent"), said["traceparent"]
    same = there is None or there[:35] == here[:35]
    return {**own, "traceparent": here} if same else own


def ambient() -> Trace | None:
    """Give what OpenTelemetry says of the code that calls this, if it is in use here."""
    otel = _otel()
    if otel is None:
        return None
    carrier: dict[str, str] = {}
    try:
        otel[1].inject(carrier)
    except Exception:  # noqa: BLE001 - a foreign propagator; nobody's question fails for it
        _log.debug("hermes-bridge: no trace context", exc_info=True)
    found = taken(carrier)
    return found if found is not None and "traceparent" in found else None


@contextmanager
def joined(trace: Trace | None) -> Iterator[None]:
    """Let what is started in here be part of this trace, or of none.

    Of none counts too: a turn is often begun by the end of another one, and would inherit its
    context.
    """
    otel, token = _otel(), None
    if otel is not None:
        context, propagate = otel
        try:
            token = context.attach(propagate.extract(trace or {}, context=context.Context()))
        except Exception:  # noqa: BLE001 - as above
            _log.debug("hermes-bridge: the trace was not joined", exc_info=True)
    try:
        yield
    finally:
        if otel is not None and token is not None:
            otel[0].detach(token)


def _otel() -> tuple[Any, Any] | None:
    """Give OpenTelemetry's context and propagation, if somebody here makes spans."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        return import_module("opentelemetry.context"), import_module("opentelemetry.propagate")
    except Exception:  # noqa: BLE001 - half an installation is none
        return None
