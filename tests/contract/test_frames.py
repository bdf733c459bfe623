"""Contract frames: what is read, what is ignored, how split messages come together."""

import itertools
import json

import msgspec
import pytest
from hypothesis import given, strategies as st

from hermes_bridge.contract import frames
from hermes_bridge.contract.descriptor import EDIT, OPS, SEND, Capabilities, describe
from hermes_bridge.errors import PeerError


@pytest.mark.clause("relay.frame.1")
def test_frames_of_real_gateways_are_read() -> None:
    assert frames.decode('{"type": "hello", "platform": "agentschat", "botId": "agent-a"}') == (
        frames.Hello("agentschat", "agent-a")
    )
    assert frames.decode('{"type": "inbound_ack", "bufferId": "buf-7"}') == (
        frames.InboundAck("buf-7")
    )
    assert frames.decode('{"type": "going_idle"}') == frames.GoingIdle()
    assert frames.decode('{"type": "interrupt", "session_key": "k", "reason": null}') == (
        frames.Interrupt("k")
    )
    found = frames.decode('{"type":"outbound","requestId":"r","action":{"op":"send"}}')
    assert isinstance(found, frames.Outbound)
    assert (found.request_id, found.platform, found.bot_id) == ("r", msgspec.UNSET, msgspec.UNSET)


def test_a_bot_id_that_is_null_is_not_a_missing_one() -> None:
    found = frames.decode('{"type":"outbound","requestId":"r","action":{},"botId":null}')
    assert isinstance(found, frames.Outbound)
    assert found.bot_id is None


@pytest.mark.clause("relay.frame.2")
@pytest.mark.parametrize(
    "line",
    ["", "nonsense", "[]", "17", '{"type": 5}', '{"a": 1}', "{" * 5000, '{"type":"x"}', "\0"],
)
def test_what_is_no_frame_is_ignored_and_never_raises(line: str) -> None:
    assert isinstance(frames.decode(line), frames.Ignored)


def test_a_malformed_action_says_which_field_is_wrong() -> None:
    with pytest.raises(PeerError, match="chat_id"):
        frames.decode_action(msgspec.Raw(b'{"op":"send","chat_id":7}'))


@pytest.mark.clause("relay.frame.3")
def test_a_frame_split_over_two_messages_is_put_together() -> None:
    lines = frames.Lines()
    assert lines.feed('{"type":"going') == []
    assert lines.feed('_idle"}\n{"type":"hel') == ['{"type":"going_idle"}']
    assert lines.feed('lo"}\n') == ['{"type":"hello"}']


@pytest.mark.clause("relay.frame.3")
def test_a_last_line_without_its_newline_counts_when_it_is_whole() -> None:
    assert frames.Lines().feed('{"a":1}\n\n  \n{"b":2}') == ['{"a":1}', '{"b":2}']


@given(
    bodies=st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=6), max_size=3), max_size=5
    ),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_frames_survive_any_cutting(bodies: list[dict[str, str]], cuts: list[int]) -> None:
    stream = "".join(json.dumps(body) + "\n" for body in bodies)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    lines = frames.Lines()
    found: list[str] = []
    for start, end in itertools.pairwise(places):
        found += lines.feed(stream[start:end])
    assert [json.loads(line) for line in found] == bodies


@pytest.mark.clause("relay.frame.4")
def test_a_frame_without_end_is_refused_before_it_fills_the_memory() -> None:
    lines = frames.Lines(limit=1000)
    with pytest.raises(PeerError) as caught:
        for _ in range(20):
            lines.feed("x" * 100)
    assert caught.value.close_code == 1009


def test_a_request_id_goes_back_as_it_came_or_not_at_all() -> None:
    assert json.loads(frames.outbound_result({"a": [1]}, {"success": True})) == {
        "type": "outbound_result",
        "requestId": {"a": [1]},
        "result": {"success": True},
    }
    assert "requestId" not in json.loads(frames.outbound_result(msgspec.UNSET, {}))


@pytest.mark.clause("relay.frame.1")
def test_every_frame_that_is_sent_ends_with_one_newline() -> None:
    sent = [
        frames.going_idle_ack(),
        frames.inbound({"text": "a\nb"}, "7"),
        frames.descriptor({}),
        frames.refusal("unknown_identity"),
        frames.interrupt_inbound("k", "c"),
    ]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in sent)


@pytest.mark.clause("relay.hello.2")
def test_the_descriptor_advertises_exactly_what_works() -> None:
    some = describe(Capabilities("p", "P", ops=(SEND,)))
    assert (some["supports_edit"], some["supported_ops"]) == (False, ["send"])
    every = describe(Capabilities("p", "P", ops=OPS))
    assert (every["supports_edit"], set(every["supported_ops"])) == (True, set(OPS))
    assert EDIT in every["supported_ops"]
    required = {
        "contract_version", "platform", "label", "max_message_length", "supports_draft_streaming",
        "supports_edit", "supports_threads", "markdown_dialect", "len_unit",
    }  # fmt: skip
    assert required <= set(some)


def test_a_policy_is_read_and_a_broken_one_says_why() -> None:
    body = b'{"platform":"agentschat","requireAddress":false,"freeResponseScopes":["r"]}'
    assert frames.decode_policy(body) == frames.Policy("agentschat", False, ("r",), True)
    with pytest.raises(PeerError, match="requireAddress"):
        frames.decode_policy(b'{"platform":"agentschat","requireAddress":"yes"}')
