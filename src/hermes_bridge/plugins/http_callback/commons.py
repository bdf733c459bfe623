"""What all copies of this plugin in one process share.

Hermes imports a plugin once for every profile that it serves, under names of their own; but there is one
webhook platform, which one of the copies has wrapped, and each home has one outbox.
"""

import sys
import types
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PLACE = "_http_callback_commons_1"


def shared(name: str, make: Callable[[], T]) -> T:
    """Give the object of this name, made by whoever asks first."""
    place = sys.modules.setdefault(_PLACE, types.ModuleType(_PLACE))
    found: T = place.__dict__.setdefault(name, make())
    return found
