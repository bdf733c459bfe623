"""The receiver's check: what the plugin sends is accepted, everything else is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.callback.receiver import Refused, Seen, Verifier
from hermes_bridge.plugins.http_callback import payload, signing

ROOT = Path(__file__).parents[2]
VECTORS = json.loads((ROOT / "tests/vectors/callback/signatures.json").read_text("utf-8"))
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NOW = 1_700_000_000


def sent(
    profile: str = "default", secret: str = SECRET, at: int = NOW, form: str = "compat"
) -> tuple[dict[str, str], bytes]:
    """What the plugin sends."""
    answer = payload.Answer("msg_1", "final", "olá 😊", NOW, "d1", {"conversation_id": 55})
    body = payload.body(answer, 7, form=form, with_hermes=profile != "captain")
    ring = signing.Keyring(signing.read_secret(secret))
    return signing.headers(profile, ring, signing.Letter("msg_1", body, at, 3), "t"), body


def verifier(*secrets: str, legacy: bool = True) -> Verifier:
    return Verifier(*(secrets or (SECRET,)), legacy=legacy, now=lambda: NOW)


@pytest.mark.clause("callback.sign.4")
@pytest.mark.parametrize("profile", ["default", "captain", "standard", "svix"])
@pytest.mark.parametrize("form", ["compat", "standard"])
def test_what_the_plugin_sends_is_accepted_and_read(profile: str, form: str) -> None:
    headers, body = sent(profile, form=form)
    found = verifier().verify(headers, body)
    assert (found.id, found.content, found.reply_to) == ("msg_1", "olá 😊", "d1")
    assert (found.metadata, found.attempt, found.kind) == ({"conversation_id": 55}, 3, "final")


def test_headers_may_come_as_pairs_and_in_any_spelling() -> None:
    headers, body = sent()
    pairs = [(name.upper().replace("-", "_"), value) for name, value in headers.items()]
    assert verifier().verify(pairs, body).id == "msg_1"


@pytest.mark.parametrize("case", VECTORS["legacy"])
def test_the_legacy_vector_is_accepted(case: dict[str, str]) -> None:
    headers = {"X-Hermes-Callback-Signature": case["signature"]}
    assert verifier(case["secret"]).verify(headers, case["body"].encode()).content == "olá 😊"


def test_either_secret_is_accepted_while_one_is_replaced() -> None:
    for secret in (SECRET, OLDER):
        headers, body = sent(secret=secret)
        assert verifier(SECRET, OLDER).verify(headers, body)


@pytest.mark.clause("callback.sign.4")
@pytest.mark.parametrize("age", [-301, 301, 10**9])
def test_a_request_outside_the_window_is_refused(age: int) -> None:
    headers, body = sent(at=NOW - age)
    with pytest.raises(Refused, match="too old") as refused:
        verifier().verify(headers, body)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1,é"},
        {"webhook-signature": ""},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "٣"},
        {"webhook-timestamp": ""},
        {"webhook-id": "msg_2"},
        {"webhook-id": ""},
    ],
    ids=str,
)
def test_a_changed_header_is_refused_although_the_legacy_signature_is_good(
    change: dict[str, str],
) -> None:
    headers, body = sent()
    with pytest.raises(Refused):
        verifier().verify(headers | change, body)


def test_without_a_signature_or_with_the_weak_one_alone_when_it_is_not_wanted_it_is_refused() -> (
    None
):
    headers, body = sent("captain")
    with pytest.raises(Refused):
        verifier(legacy=False).verify(headers, body)
    with pytest.raises(Refused):
        verifier().verify({}, body)
    with pytest.raises(Refused):
        verifier("another").verify(headers, body)


@given(
    st.binary(max_size=60), st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=4)
)
def test_no_request_makes_anything_but_a_refusal(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(Refused):
        verifier().verify(headers, body)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"5", b"{}", b'{"content": 5}', b'{"type": "x"}', b"\xff", b"[" * 100_000],
    ids=range(8),
)
def test_a_signed_body_that_is_no_callback_is_a_400(body: bytes) -> None:
    secret = signing.read_secret(SECRET)
    headers = {"X-Hermes-Callback-Signature": signing.legacy_signature(secret, body)}
    with pytest.raises(Refused) as refused:
        verifier().verify(headers, body)
    assert refused.value.status == 400


@pytest.mark.parametrize("secret", VECTORS["refused_secrets"])
def test_a_broken_secret_is_refused_at_the_start(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        Verifier(secret)


def test_a_verifier_without_a_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="secret"):
        Verifier()


def test_an_id_is_new_once_and_the_oldest_are_forgotten() -> None:
    seen = Seen(2)
    assert [seen.first(id) for id in ("a", "b", "a", "c", "b")] == [True, True, False, True, True]
    seen.forget("b")
    assert seen.first("b")


@pytest.mark.parametrize("name", ["starlette", "wsgi"])
def test_the_examples_run(name: str) -> None:
    program = ROOT / f"examples/callback_receiver_{name}.py"
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
