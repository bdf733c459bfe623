"""Signatures: vectors, the secret's forms, rotation, profiles, and the official verifiers."""

import json
import time
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook
from svix.webhooks import Webhook as SvixWebhook
from tests.plugins.http_callback.receiver import SECRET

from hermes_bridge.plugins.http_callback import payload, signing

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/callback/signatures.json").read_text("utf-8")
)
OLDER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def letter(body: bytes, timestamp: int | None = None, attempt: int = 1) -> signing.Letter:
    return signing.Letter("msg_1", body, timestamp or int(time.time()), attempt)


def ring(current: str, previous: str = "", **options: bool) -> signing.Keyring:
    older = signing.read_secret(previous) if previous else None
    return signing.Keyring(signing.read_secret(current), older, **options)


@pytest.mark.clause("callback.sign.1")
@pytest.mark.parametrize("case", VECTORS["legacy"])
def test_the_legacy_signature_is_the_published_one(case: dict[str, str]) -> None:
    secret = signing.read_secret(case["secret"])
    assert signing.legacy_signature(secret, case["body"].encode()) == case["signature"]


@pytest.mark.clause("callback.sign.2")
@pytest.mark.parametrize("case", VECTORS["standard"])
def test_the_standard_signature_is_the_published_one(case: dict[str, str]) -> None:
    secret = signing.read_secret(case["secret"])
    sent = signing.Letter(case["id"], case["body"].encode(), int(case["timestamp"]), 1)
    assert signing.standard_signature(secret, sent) == case["signature"]


@pytest.mark.clause("callback.secret.1")
@pytest.mark.parametrize("text", VECTORS["refused_secrets"])
def test_a_broken_secret_is_refused_with_a_reason_that_does_not_tell_it(text: str) -> None:
    with pytest.raises(signing.SecretError) as refused:
        signing.read_secret(text)
    assert len(str(refused.value)) > 10
    assert not text.strip() or text not in str(refused.value)


@pytest.mark.clause("callback.secret.1")
@pytest.mark.parametrize("text", VECTORS["raw_secrets"])
def test_any_other_secret_is_used_as_typed(text: str) -> None:
    assert signing.read_secret(text).key == text.encode()


def test_a_secret_shows_itself_nowhere() -> None:
    assert "s3cret" not in repr(signing.Keyring(signing.read_secret("s3cret")))


@pytest.mark.clause("callback.sign.2")
def test_the_official_verifiers_accept_what_is_sent() -> None:
    answer = payload.Answer("msg_1", "final", "olá 😊\u2028", int(time.time()))
    body = payload.body(answer, 7)
    standard = signing.headers("standard", ring(SECRET), letter(body), "t")
    StandardWebhook(SECRET).verify(body, standard)
    svix = signing.headers("svix", ring(SECRET), letter(body), "t")
    SvixWebhook(SECRET).verify(body, svix)


@pytest.mark.clause("callback.rotate.1")
def test_while_a_secret_is_rotated_receivers_with_either_one_accept() -> None:
    body = b'{"content": "x"}'
    sent = signing.headers("default", ring(SECRET, OLDER), letter(body), "t")
    for secret in (SECRET, OLDER):
        StandardWebhook(secret).verify(body, sent)
    assert sent[signing.LEGACY_HEADER] == signing.legacy_signature(
        signing.read_secret(SECRET), body
    )


@pytest.mark.clause("callback.rotate.2")
def test_the_legacy_header_carries_one_signature_and_can_stay_with_the_previous_secret() -> None:
    body = b"{}"
    sent = signing.headers(
        "captain", ring(SECRET, OLDER, legacy_uses_previous=True), letter(body), "t"
    )
    assert sent[signing.LEGACY_HEADER] == signing.legacy_signature(signing.read_secret(OLDER), body)


PROFILES = {
    "default": {
        "x-hermes-callback-signature",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    },
    "captain": {"x-hermes-callback-signature", "webhook-id"},
    "standard": {
        "x-hermes-callback-signature",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    },
    "svix": {"x-hermes-callback-signature", "svix-id", "svix-timestamp", "svix-signature"},
    "github": {"x-hermes-callback-signature", "x-hub-signature-256", "webhook-id"},
    "bearer": {"authorization", "webhook-id"},
}
ALWAYS = {"content-type", "user-agent", "idempotency-key", "x-hermes-callback-attempt"}


@pytest.mark.clause("callback.profile.1")
@pytest.mark.parametrize("profile", signing.PROFILES)
def test_a_profile_sends_its_headers_and_no_others(profile: str) -> None:
    sent = signing.headers(profile, ring("s3cret"), letter(b"{}"), "t")
    assert {name.lower() for name in sent} == PROFILES[profile] | ALWAYS


@pytest.mark.clause("callback.profile.2")
def test_without_a_secret_nothing_is_signed_and_ids_are_there() -> None:
    sent = signing.headers("default", signing.Keyring(), letter(b"{}"), "t")
    assert {name.lower() for name in sent} == ALWAYS | {"webhook-id"}


@pytest.mark.clause("callback.retry.1")
def test_a_later_attempt_has_the_same_id_and_a_fresh_signature() -> None:
    body = b"{}"
    first, second = (
        signing.headers("default", ring(SECRET), letter(body, 1_700_000_000 + n, n), "t")
        for n in (1, 2)
    )
    assert first["webhook-id"] == second["webhook-id"] == first["Idempotency-Key"]
    assert first["webhook-signature"] != second["webhook-signature"]
    assert first[signing.LEGACY_HEADER] == second[signing.LEGACY_HEADER]


def test_a_caught_request_can_be_checked() -> None:
    body = b"{}"
    sent = signing.headers("default", ring(SECRET), letter(body), "t")
    lower = {name.lower(): value for name, value in sent.items()}
    secret = signing.read_secret(SECRET)
    assert signing.check(secret, lower, body) == {
        "x-hermes-callback-signature": True,
        "webhook-signature": True,
    }
    assert not any(signing.check(secret, lower, body + b" ").values())
