"""Context from memory: only while nothing can have been missed."""

from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.platforms.agentschat.rings import Rings


def said(number: int, text: str = "") -> Message:
    return Message(
        "agentschat", "room", f"m{number}", "ada", text or f"t{number}", at=f"{number:03d}"
    )


def ids(rows: list[Message] | None) -> list[str] | None:
    return None if rows is None else [row.id for row in rows]


def trusted() -> Rings:
    rings = Rings()
    rings.listening("a", "room")
    assert rings.begin("a", "room")
    rings.heard(said(3))
    rings.fill("room", [said(1), said(2), said(3)])
    return rings


def test_a_reading_and_what_came_by_meanwhile_are_joined_once() -> None:
    rings = trusted()
    rings.heard(said(4))
    rings.heard(said(4))
    assert ids(rings.read("a", "room")) == ["m1", "m2", "m3", "m4"]


def test_who_does_not_listen_reads_nothing() -> None:
    assert trusted().read("b", "room") is None


def test_the_last_listeners_loss_ends_the_trust_and_an_earlier_one_does_not() -> None:
    rings = trusted()
    rings.listening("b", "room")
    rings.lost("a")
    assert rings.read("a", "room") is None
    assert ids(rings.read("b", "room")) == ["m1", "m2", "m3"]
    rings.lost("b")
    rings.listening("b", "room")
    assert rings.read("b", "room") is None


def test_a_reading_that_was_interrupted_by_a_loss_is_not_kept() -> None:
    rings = Rings()
    rings.listening("a", "room")
    rings.begin("a", "room")
    rings.lost("a")
    rings.listening("a", "room")
    rings.fill("room", [said(1)])
    assert rings.read("a", "room") is None


def test_a_failed_reading_is_tried_again() -> None:
    rings = Rings()
    rings.listening("a", "room")
    rings.begin("a", "room")
    rings.fill("room", None)
    assert rings.read("a", "room") is None
    assert rings.begin("a", "room")


def test_changes_are_followed_and_long_texts_are_not_kept() -> None:
    rings = trusted()
    rings.edited("room", "m1", "x" * 5000)
    rings.deleted("room", "m2")
    rings.deleted("elsewhere", "m2")
    rows = rings.read("a", "room")
    assert ids(rows) == ["m1", "m3"]
    assert rows is not None
    assert len(rows[0].text) == 600
