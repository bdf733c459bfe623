"""Waiting for what somebody else does: bounded, and it says what did not come."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

WAIT_S = 30.0


What = str | Callable[[], str]
"""What is waited for, for the message when it does not come."""


def until(condition: Callable[[], Any], what: What, timeout: float = WAIT_S) -> Any:
    """Wait for something that only a file or another process can tell."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"not {_words(what)} after {timeout} s"
        time.sleep(0.01)
    return found


async def eventually(condition: Callable[[], Any], what: What, timeout: float = WAIT_S) -> Any:
    """The same in an async test; `condition` may be awaitable."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"not {_words(what)} after {timeout} s"
        await asyncio.sleep(0.01)


def _words(what: What) -> str:
    return what if isinstance(what, str) else what()
