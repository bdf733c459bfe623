"""Where callbacks may go: strict URLs, and two tiers of addresses that are refused.

Pure. Forbidden addresses (loopback, link-local, metadata, reserved) open only to their exact host
or network; private ones also to `allow_private`. An IPv4 address hidden in an IPv6 one is judged
as itself. The standard library's `is_private`/`is_global` are not used: what they say differs
between patch releases of Python, and they miss metadata addresses in public space.
"""

import functools
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAX_URL = 2048


def _nets(table: str) -> tuple[tuple[Network, str], ...]:
    rows = (line.split(maxsplit=1) for line in table.strip().splitlines())
    return tuple((ipaddress.ip_network(net), name) for net, name in rows)


METADATA = _nets("""
169.254.0.0/16 link-local (cloud metadata)
100.100.100.200/32 a cloud metadata address
168.63.129.16/32 a cloud platform address
fd00:ec2::254/128 a cloud metadata address
""")
FORBIDDEN = _nets("""
0.0.0.0/8 unspecified
127.0.0.0/8 loopback
192.0.0.0/24 reserved for protocols
192.0.2.0/24 reserved for documentation
192.88.99.0/24 the old 6to4 relay
198.51.100.0/24 reserved for documentation
203.0.113.0/24 reserved for documentation
224.0.0.0/4 multicast
240.0.0.0/4 reserved
::/128 unspecified
::1/128 loopback
::/96 an old IPv4-compatible address
100::/64 discard-only
2001:db8::/32 reserved for documentation
3fff::/20 reserved for documentation
5f00::/16 segment routing
fe80::/10 link-local
fec0::/10 site-local
ff00::/8 multicast
""")
PRIVATE = _nets("""
10.0.0.0/8 private
172.16.0.0/12 private
192.168.0.0/16 private
100.64.0.0/10 shared by carriers (CGNAT)
198.18.0.0/15 for benchmarks
fc00::/7 private
""")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_TEREDO = ipaddress.IPv6Network("2001::/32")

_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.I
)
_NUMBERISH = re.compile(r"(0x[0-9a-f]*|[0-9]+)$", re.I)
_BAD = re.compile(r"[\x00-\x20\x7f\\\"<>^`|]")
_BRACES = re.compile(r"\{[^{}]*\}?")


class BadUrl(ValueError):
    """A callback URL that cannot be used; the text says what is wrong with it."""


@dataclass(frozen=True)
class Place:
    """A callback URL, taken apart. `url` is what goes on the wire, byte for byte as given."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    fragment: str = ""

    @property
    def key(self) -> str:
        """Name the endpoint: scheme, host, port and path, without the query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def origin(self) -> str:
        """Name scheme, host and port as a person writes them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == usual else f":{self.port}")

    @property
    def ip(self) -> Ip | None:
        """Give the address when the host is a literal one."""
        return as_ip(self.host)


@functools.lru_cache(maxsize=4096)
def as_ip(text: str) -> Ip | None:
    """Read a literal address; None for a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=2048)
def read_url(text: str) -> Place:
    """Take a callback URL apart, strictly: what two parsers could read in two ways is refused.

    Raises:
        BadUrl: with the reason, without the URL's query (it often holds tokens).
    """
    url, _, fragment = text.strip().partition("#")
    if len(url) > MAX_URL:
        raise BadUrl(f"the URL is longer than {MAX_URL} characters")
    if hole := _BRACES.search(url):
        raise BadUrl(
            f"the URL still holds the placeholder {hole[0][:60]}: the payload lacks that key"
        )
    if _BAD.search(url):
        raise BadUrl("the URL holds a space, a backslash or another character that must be encoded")
    if not url.isascii():
        url = quote(url.encode("utf-8", "replace"), safe="".join(map(chr, range(0x21, 0x7F))))
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadUrl("the host or port cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise BadUrl("a callback URL starts with http:// or https://")
    if "@" in parts.netloc:
        raise BadUrl("a user name or password in the URL is not allowed; use a secret")
    host = _host(parts.netloc)
    if port == 0:
        raise BadUrl("port 0 cannot be called")
    standard = 443 if parts.scheme == "https" else 80
    return Place(url, parts.scheme, host, port or standard, parts.path or "/", fragment)


def _host(netloc: str) -> str:
    if netloc.startswith("["):
        inner, _, rest = netloc[1:].partition("]")
        if as_ip(inner) is None or "%" in inner or (rest and not rest.startswith(":")):
            raise BadUrl("the address in brackets is not an IPv6 address")
        return inner.lower()
    host = netloc.partition(":")[0].lower()
    if as_ip(host) is not None:
        return host
    if not _NAME.fullmatch(host):
        raise BadUrl("the URL has no usable host name")
    if _NUMBERISH.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        # 2130706433, 127.1, 0x7f.1: some resolvers turn these into loopback.
        raise BadUrl(f"{host} is a number, not an address; write all four parts")
    return host.rstrip(".")


def inner_address(ip: Ip) -> Ip:
    """Unwrap an IPv4 address carried inside an IPv6 one."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    low = int(ip) & 0xFFFFFFFF
    if ip in _MAPPED or ip in _TRANSLATED or ip in _NAT64[0] or ip in _NAT64[1]:
        return ipaddress.IPv4Address(low)
    if ip in _SIX_TO_FOUR:
        return ipaddress.IPv4Address((int(ip) >> 80) & 0xFFFFFFFF)
    if ip in _TEREDO:
        return ipaddress.IPv4Address(low ^ 0xFFFFFFFF)
    return ip


@dataclass(frozen=True)
class Refusal:
    """Why an address is refused: its tier, the network and its name."""

    ip: str
    tier: str
    network: str
    name: str

    def words(self, origin: str) -> str:
        """Say it to an operator, with the command that changes it."""
        if self.tier == "metadata":
            return (
                f"{self.ip} is {self.name} ({self.network}); callbacks never go there unless that "
                f"very address is named: `hermes callback allow {self.ip}`"
            )
        return (
            f"{self.ip} is {self.name} ({self.network}); if this receiver is yours, "
            f"run `hermes callback allow {origin}`"
        )


@functools.lru_cache(maxsize=4096)
def classify(ip: Ip) -> Refusal | None:
    """Find the rule that refuses an address; None when it is an ordinary public one."""
    ip = inner_address(ip)
    for tier, table in (("metadata", METADATA), ("forbidden", FORBIDDEN), ("private", PRIVATE)):
        for network, name in table:
            if ip.version == network.version and ip in network:
                return Refusal(str(ip), tier, str(network), name)
    return None


@dataclass(frozen=True)
class Allowed:
    """One thing the operator allows: a host (with or without a port) or a network."""

    host: str = ""
    port: int = 0
    network: Network | None = None


def read_allowed(text: str) -> Allowed:
    """Read an entry of the allow list: a URL, `host`, `host:port`, an address or a network.

    Raises:
        BadUrl: it is none of these.
    """
    text = text.strip()
    if "://" in text:
        place = read_url(text)
        return Allowed(place.host, place.port)
    try:
        return Allowed(network=ipaddress.ip_network(text, strict=False))
    except ValueError:
        if "/" in text:
            raise BadUrl(f"{text[:100]} is not a network such as 10.0.0.0/8") from None
        place = read_url(f"http://{text}/")
    return Allowed(place.host, place.port if place.port != 80 or text.endswith(":80") else 0)


@dataclass(frozen=True)
class Guard:
    """The operator's rules. `only`: when not empty, the only origins that raw URLs may name."""

    allowed: tuple[Allowed, ...] = ()
    allow_private: bool = False
    only: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, entries: Iterable[str], *, private: bool = False, only: Iterable[str] = ()
    ) -> "Guard":
        """Build a guard from written entries."""
        origins = frozenset(read_url(text).origin for text in only)
        return cls(tuple(read_allowed(text) for text in entries), private, origins)

    def refuses(self, ip: Ip, host: str, port: int) -> Refusal | None:
        """Judge one concrete address that `host` stands for; None when it may be connected to."""
        found = classify(ip)
        if found is None or (found.tier == "private" and self.allow_private):
            return None
        inner = inner_address(ip)
        for rule in self.allowed:
            if rule.network is not None:
                if inner.version == rule.network.version and inner in rule.network:
                    return None
                continue
            if rule.host != host or rule.port not in (0, port):
                continue
            # A name may stand for loopback or a private address, never for a metadata one.
            if found.tier != "metadata" or as_ip(rule.host) is not None:
                return None
        return found

    def refuses_place(self, place: Place, *, named: bool = False) -> str:
        """Judge a URL before anything is looked up; "" or the reason in words."""
        if self.only and not named and place.origin not in self.only:
            return (
                f"{place.origin} is not in the setting `only`; add it there or use a named endpoint"
            )
        if (ip := place.ip) is not None and (found := self.refuses(ip, place.host, place.port)):
            return found.words(place.origin)
        return ""
