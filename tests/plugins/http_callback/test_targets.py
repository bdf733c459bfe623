"""From a chat id to a receiver, and to the queue in which order is kept."""

import pytest

from hermes_bridge.plugins.http_callback.config import Settings, read_settings
from hermes_bridge.plugins.http_callback.targets import (
    BadTarget,
    conversation,
    lane,
    resolve,
    safe,
    typing_url,
)


def settings(**extra: object) -> Settings:
    return read_settings(extra, lambda name: None)


CRM = settings(
    home_url="https://home.example/cb",
    endpoints={"crm": {"url": "http://172.17.0.1:3000/cb?inbox_id=3", "profile": "captain"}},
)


@pytest.mark.clause("callback.target.1")
def test_a_url_is_a_target() -> None:
    found = resolve("https://backend.example/cb?c=55", CRM)
    assert (found.key, found.place.url) == (
        "https://backend.example:443/cb",
        "https://backend.example/cb?c=55",
    )


@pytest.mark.clause("callback.target.2")
def test_a_named_endpoint_is_a_target_with_its_own_settings_and_may_be_private() -> None:
    found = resolve("@crm", CRM)
    assert (found.key, found.endpoint.profile) == ("@crm", "captain")
    assert found.place.url == "http://172.17.0.1:3000/cb?inbox_id=3"


@pytest.mark.clause("callback.target.2")
def test_a_named_endpoint_may_be_given_a_query_and_an_order_key() -> None:
    found = resolve("@crm?conversation_id=7#key=seven", CRM)
    assert found.place.url == "http://172.17.0.1:3000/cb?inbox_id=3&conversation_id=7"
    assert found.order == "seven"


@pytest.mark.clause("callback.target.3")
@pytest.mark.parametrize(
    ("chat_id", "why"),
    [
        ("@nobody", "known: @crm"),
        ("http://172.17.0.1:3001/cb", "hermes callback allow http://172.17.0.1:3001"),
        ("http://127.0.0.1/", "loopback"),
        ("{callback_url}", "placeholder"),
        ("mailto:x@example.com", "http://"),
        ("http://172.17.0.1:3000@evil.example/", "password"),
    ],
)
def test_a_target_that_cannot_be_used_says_why(chat_id: str, why: str) -> None:
    with pytest.raises(BadTarget, match=why):
        resolve(chat_id, CRM)


@pytest.mark.clause("callback.target.4")
def test_without_a_target_the_home_url_is_used_or_the_error_names_the_setting() -> None:
    assert resolve("", CRM).place.url == "https://home.example/cb"
    with pytest.raises(BadTarget, match="HTTP_CALLBACK_HOME_URL"):
        resolve("", settings())


def test_a_url_that_hermes_cut_after_its_scheme_is_put_together_again() -> None:
    assert resolve("https", CRM, "//backend.example/cb").place.url == "https://backend.example/cb"


@pytest.mark.clause("callback.order.1")
@pytest.mark.parametrize(
    ("chat_id", "metadata", "talk"),
    [
        ("https://b.example/cb?c=1#key=k", {"thread_id": "t"}, "t"),
        ("https://b.example/cb?c=1#key=k", {"conversation_id": 5}, "k"),
        ("https://b.example/cb?c=1", {"conversation_internal_id": 5}, "5"),
        ("https://b.example/cb?c=1", {}, ""),
    ],
)
def test_the_conversation_is_the_thread_the_key_or_the_id_from_the_payload(
    chat_id: str, metadata: dict[str, object], talk: str
) -> None:
    assert conversation(resolve(chat_id, CRM), metadata) == talk


@pytest.mark.clause("callback.order.1")
def test_order_is_kept_in_the_conversation_else_in_the_url_else_in_the_session() -> None:
    asked = resolve("https://b.example/cb?c=1", CRM)
    plain = resolve("https://b.example/cb", CRM)
    assert lane(asked, "55", "chat", "id") == lane(plain, "55", "other", "id")
    assert lane(asked, "", "chat", "id") == lane(asked, "", "other", "id2")
    assert lane(plain, "", "chat", "id") != lane(plain, "", "other", "id")
    assert lane(plain, "", "", "id") == lane(plain, "", "", "id2")


def test_without_ordering_every_callback_is_a_queue_of_its_own() -> None:
    free = resolve("https://b.example/cb?c=1", settings(ordering="none"))
    assert lane(free, "55", "chat", "id1") != lane(free, "55", "chat", "id2")


def test_tokens_of_a_url_do_not_reach_the_log() -> None:
    assert safe("https://b.example/cb?token=s3cret#key=x") == "https://b.example/cb"


@pytest.mark.clause("callback.typing.1")
@pytest.mark.parametrize(
    ("typing", "url"),
    [
        ({"url": "http://172.17.0.1:3000/typing"}, "http://172.17.0.1:3000/typing?inbox_id=3&c=1"),
        ({"path_suffix": "/typing"}, "http://172.17.0.1:3000/cb/typing?inbox_id=3&c=1"),
    ],
)
def test_the_typing_url_takes_the_callbacks_query(typing: dict[str, str], url: str) -> None:
    endpoints = {"crm": {"url": "http://172.17.0.1:3000/cb?inbox_id=3", "typing": typing}}
    assert typing_url(resolve("@crm?c=1", settings(endpoints=endpoints))) == url
    assert typing_url(resolve("@crm?c=1", CRM)) == ""
