"""Where a relay listens: TLS, IPv6, and certificates that are none."""

import asyncio
import json
import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path

import anyio
import pytest
from tests.conftest import missing
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import until
from tests.harness.wire import raw
from websockets.asyncio.client import connect

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        missing("openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *more], check=True, capture_output=True)
    return cert, key


def listening(relays: Make, **listen: str) -> RelayProcess:
    relay = relays(start=False)
    where = {"host": "127.0.0.1", "port": relay.port, **listen}
    relay.write({**relay.config, "listen": where})
    return relay.launch()


async def test_with_a_certificate_everything_speaks_tls(
    relays: Make, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    relay = listening(relays, tls_cert=str(cert), tls_key=str(key))
    until(lambda: relay.events("serve.ready"), "ready", 20)
    trusted = ssl.create_default_context(cafile=str(cert))
    url, headers = (
        f"https://127.0.0.1:{relay.port}",
        {"Authorization": f"Bearer {relay.token('a')}"},
    )
    call = {"name": "ask_agent", "arguments": {"to": "b", "message": "?"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    headers |= {"Content-Type": "application/json"}
    request = urllib.request.Request(url + "/mcp", body, headers)

    def ask() -> bytes:
        with urllib.request.urlopen(request, timeout=15, context=trusted) as answer:
            return bytes(answer.read())

    link = f"wss://127.0.0.1:{relay.port}/bridge/connect"
    token = {"Authorization": f"Bearer {relay.token('b')}"}
    async with connect(link, additional_headers=token, ssl=trusted, proxy=None) as socket:
        asking = asyncio.create_task(anyio.to_thread.run_sync(ask))
        wake = json.loads(await socket.recv())
        reply = {"request_id": wake["request_id"], "answer": "x" * 200_000}
        await socket.send(json.dumps({"type": "call", "id": 1, "tool": "reply", "args": reply}))
        assert b"x" * 200_000 in await asking
        assert await raw(relay.port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", end=True) == b""
        assert await anyio.to_thread.run_sync(relay.stop) == 0


async def test_it_listens_on_ipv6(relays: Make) -> None:
    relay = listening(relays, host="::1")
    ready = until(lambda: relay.events("serve.ready"), "ready", 20)
    assert ready[0]["address"] == f"http://[::1]:{relay.port}"
    with urllib.request.urlopen(ready[0]["address"] + "/health", timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("kind", ["missing", "garbage", "swapped", "folder"])
async def test_a_certificate_that_is_none_ends_with_2_and_words(
    relays: Make, certificate: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    cert, key = certificate
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    files = {
        "missing": (tmp_path / "nowhere.pem", key),
        "garbage": (garbage, key),
        "swapped": (key, cert),
        "folder": (tmp_path, key),
    }[kind]
    relay = listening(relays, tls_cert=str(files[0]), tls_key=str(files[1]))
    assert relay.process is not None
    code = await anyio.to_thread.run_sync(relay.process.wait, 15)
    said = relay.log() + (relay.folder / "out.log").read_text()
    relay.process = None
    assert code == 2, said
    assert "tls" in said.lower() or "certificate" in said.lower()
    assert "Traceback" not in said
