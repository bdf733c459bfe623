"""Which URLs and addresses are refused, by which rule, and what opens them."""

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from hermes_bridge.plugins.http_callback.urlguard import (
    BadUrl,
    Guard,
    classify,
    read_allowed,
    read_url,
)

CORPUS = json.loads(
    (Path(__file__).parents[2] / "vectors/callback/addresses.json").read_text("utf-8")
)
HOST, PORT = "backend.example", 443


def refused(guard: Guard, ip: str, host: str = HOST, port: int = PORT) -> bool:
    return guard.refuses(ipaddress.ip_address(ip), host, port) is not None


@pytest.mark.clause("callback.guard.1")
@pytest.mark.parametrize(("ip", "why"), CORPUS["refused"].items())
def test_an_address_of_the_corpus_is_refused_and_its_rule_named(ip: str, why: str) -> None:
    found = classify(ipaddress.ip_address(ip))
    assert found is not None
    assert why in f"{found.tier} {found.name}"
    words = found.words(f"http://{ip}")
    assert found.network in words
    assert "hermes callback allow" in words


@pytest.mark.clause("callback.guard.1")
@pytest.mark.parametrize("ip", CORPUS["public"])
def test_a_public_address_is_not_refused(ip: str) -> None:
    assert classify(ipaddress.ip_address(ip)) is None


@pytest.mark.clause("callback.url.1")
@pytest.mark.parametrize(("url", "why"), CORPUS["bad_urls"].items())
def test_a_url_that_two_parsers_could_read_differently_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why):
        read_url(url)


def test_a_url_of_absurd_length_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadUrl) as error:
        read_url("https://example.com/?token=" + "x" * 5000)
    assert "xxx" not in str(error.value)


@pytest.mark.clause("callback.url.2")
@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/cb?inbox_id=3&slug=a%2Fb&x=%7e",
        "http://example.com:8080/a//b/../c?x=1&&y#",
        "https://xn--bcher-kva.example/",
        "https://[2606:4700:4700::1111]:8443/x",
        "https://example.com/?a=1,2",
    ],
)
def test_a_good_url_goes_out_byte_for_byte(url: str) -> None:
    assert read_url(url + ("" if "#" in url else "#key=55")).url == url.rstrip("#")


def test_characters_beyond_ascii_are_encoded_and_the_rest_is_left_alone() -> None:
    assert (
        read_url("https://example.com/é?n=José%20x").url
        == "https://example.com/%C3%A9?n=Jos%C3%A9%20x"
    )


def test_an_endpoint_is_named_without_its_query() -> None:
    place = read_url("https://Example.com/cb?token=secret#key=1")
    assert place.key == "https://example.com:443/cb"
    assert place.origin == "https://example.com"
    assert place.fragment == "key=1"


@pytest.mark.clause("callback.guard.2")
def test_private_addresses_open_together_and_loopback_stays_shut() -> None:
    guard = Guard(allow_private=True)
    assert not refused(guard, "10.0.0.1")
    assert not refused(guard, "fd12::1")
    assert refused(guard, "127.0.0.1")
    assert refused(guard, "169.254.169.254")


@pytest.mark.clause("callback.guard.3")
@pytest.mark.parametrize(
    ("entry", "open_", "shut"),
    [
        (
            "http://172.17.0.1:3000",
            [("172.17.0.1", "172.17.0.1", 3000)],
            [("172.17.0.1", "172.17.0.1", 80)],
        ),
        ("172.17.0.0/16", [("172.17.9.9", HOST, 1)], [("172.18.0.1", HOST, 1)]),
        (
            "127.0.0.1",
            [("127.0.0.1", "127.0.0.1", 9), ("::ffff:127.0.0.1", HOST, 9)],
            [("127.0.0.2", HOST, 9)],
        ),
        (
            "crm.internal",
            [("10.0.0.5", "crm.internal", 80), ("127.0.0.1", "crm.internal", 1)],
            [("169.254.169.254", "crm.internal", 80), ("10.0.0.5", "other.internal", 80)],
        ),
        (
            "crm.internal:8080",
            [("10.0.0.5", "crm.internal", 8080)],
            [("10.0.0.5", "crm.internal", 80)],
        ),
        (
            "http://[fd12::1]:8080/cb",
            [("fd12::1", "fd12::1", 8080)],
            [("fd12::2", "fd12::2", 8080)],
        ),
        (
            "169.254.169.254",
            [("169.254.169.254", "169.254.169.254", 80)],
            [("169.254.169.253", HOST, 80)],
        ),
        ("fd00::/8", [("fd12::1", HOST, 1)], [("fc00::1", HOST, 1)]),
    ],
)
def test_an_entry_opens_exactly_what_it_names(
    entry: str, open_: list[tuple[str, str, int]], shut: list[tuple[str, str, int]]
) -> None:
    guard = Guard.of([entry])
    for ip, host, port in open_:
        assert not refused(guard, ip, host, port)
    for ip, host, port in shut:
        assert refused(guard, ip, host, port)


@pytest.mark.clause("callback.guard.4")
def test_a_name_that_is_allowed_cannot_be_rebound_to_a_metadata_address() -> None:
    guard = Guard.of(["crm.internal"])
    for ip in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254"):
        assert refused(guard, ip, "crm.internal", 80)


@pytest.mark.clause("callback.guard.5")
def test_only_the_named_origins_may_be_called_when_there_is_such_a_list() -> None:
    guard = Guard.of([], only=["https://backend.example/any"])
    assert guard.refuses_place(read_url("https://backend.example/cb?x=1")) == ""
    assert "only" in guard.refuses_place(read_url("https://backend.example.evil.test/"))
    assert "only" in guard.refuses_place(read_url("http://backend.example/cb"))
    assert guard.refuses_place(read_url("http://1.2.3.4/"), named=True) == ""


@pytest.mark.parametrize("entry", ["", "not a host", "http://", "10.0.0.0/99", "user@host"])
def test_an_entry_that_names_nothing_is_refused(entry: str) -> None:
    with pytest.raises(BadUrl):
        read_allowed(entry)


@given(st.ip_addresses(v=4))
@example(ipaddress.IPv4Address("169.254.169.254"))
def test_an_ipv4_address_is_judged_alike_in_every_wrapping(ip: ipaddress.IPv4Address) -> None:
    bare = classify(ip)
    number = int(ip)
    for wrapped in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
        ipaddress.IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF)),
    ):
        assert (classify(wrapped) is None) == (bare is None)


@given(st.text(max_size=60).map(lambda text: "http://" + text))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        place = read_url(text)
    except BadUrl:
        return
    assert place.url.isascii()
    assert "@" not in place.host
    assert read_url(place.url).key == place.key
