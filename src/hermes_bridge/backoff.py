"""How long to wait before the next try: growing, capped, jittered."""

import random
from collections.abc import Iterator


def delays(
    *, first: float, cap: float, factor: float = 2.0, jitter: float = 0.2
) -> Iterator[float]:
    """Yield seconds to wait, for ever: `first`, then times `factor`, never above `cap`.

    `jitter` 0.2 moves each by up to 20 % in either direction, so that many clients that lost the
    same server do not return in one instant.
    """
    delay = first
    while True:
        yield delay * (1 + random.uniform(-jitter, jitter))
        delay = min(cap, delay * factor)
