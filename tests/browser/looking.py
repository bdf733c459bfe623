"""What can be measured about how a page looks, asked of the page itself."""

from pathlib import Path
from typing import Any

_ASK = Path(__file__).with_suffix(".js").read_text()


def _asked(page: Any, what: str) -> Any:
    return page.evaluate(f"{_ASK.strip().removesuffix(';')}.{what}()")


def wide(page: Any) -> list[str]:
    """What is wider than its room: the page, a panel, a dialog."""
    found: list[str] = _asked(page, "wide")
    return found


def low_contrast(page: Any) -> tuple[int, list[Any]]:
    """How many texts were looked at, and those below WCAG AA on the ground they stand on."""
    found = _asked(page, "contrast")
    return found["seen"], found["low"]


def small_targets(page: Any) -> list[Any]:
    """What a finger can hit on less than 44 px of height, and on how many."""
    found: list[Any] = _asked(page, "small")
    return found


def shifts(page: Any) -> list[Any]:
    """The page's moves without the reader's doing: score, when in ms, what moved."""
    found: list[Any] = _asked(page, "shifts")
    return found
