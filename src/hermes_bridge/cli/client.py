"""A small client of the relay's own endpoints, for the command line. Blocking, one call at a time."""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from hermes_bridge.errors import HermesBridgeError, Unreachable

_CONNECT_S = 10.0
_SILENT_S = 30.0
"""A held call gives a sign of life every 4 s; half a minute without one is a dead relay."""


class RelayClient:
    """Calls the relay's tools for one agent, and reads its page's JSON."""

    def __init__(self, base: str, token: str = "") -> None:
        self._base, self._token = base, token
        self._parts = urlsplit(base)

    def tool(
        self, name: str, arguments: dict[str, Any], on_note: Callable[[str], None] | None = None
    ) -> Any:
        """Call one tool; give the JSON of its result. `on_note` hears what the target says of itself."""
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments, "_meta": {"progressToken": 1}},
        }
        for message in self._rpc(body):
            if "error" in message:
                raise HermesBridgeError(
                    f"The relay refused the call: {message['error']['message']}.",
                    hint="`hermes-bridge doctor` says whether its version is the one of this command.",
                )
            if "result" in message:
                return json.loads(message["result"]["content"][0]["text"])
            if on_note is not None and message.get("method") == "notifications/progress":
                on_note(str(message["params"].get("message", "")))
        raise Unreachable(
            f"The relay at {self._base} ended the call without an answer.",
            hint="It may have been restarted. Ask again; with the same --key nothing runs twice.",
        )

    def get(self, path: str, key: str) -> dict[str, Any]:
        """Read a JSON object, which has `key`, from one of the relay's paths."""
        response = self._request("GET", path, None, {})
        try:
            text = response.read()
        except (OSError, http.client.HTTPException):
            raise Unreachable(
                f"The connection to {self._base} broke before {path} had arrived.",
                hint="The relay may have been restarted: try again.",
            ) from None
        if response.status in (401, 403):
            raise HermesBridgeError(
                f"The relay does not show {path} to you (HTTP {response.status}).",
                hint="Set ui.password in its configuration, and run this with that configuration.",
            )
        if response.status != 200:
            raise HermesBridgeError(
                f"The relay answered {path} with HTTP {response.status}.",
                hint="Its log says why.",
            )
        return self._object(text, key, response.status)

    def _rpc(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        response = self._request("POST", "/mcp", json.dumps(body).encode(), headers)
        if response.status == 401:
            raise HermesBridgeError(
                "The relay does not know this token.",
                hint="Check HERMES_BRIDGE_TOKEN, or choose an agent of the configuration with --as.",
            )
        try:
            if "event-stream" not in response.getheader("content-type", ""):
                yield self._object(response.read(), "jsonrpc", response.status)
                return
            for line in response:
                if line.startswith(b"data: "):
                    yield self._object(line[6:], "jsonrpc", response.status)
        except (OSError, http.client.HTTPException):
            raise Unreachable(
                f"The connection to {self._base} broke during the call.",
                hint="The ask itself goes on. Fetch its answer by asking again with the same --key.",
            ) from None

    def _object(self, text: bytes, key: str, status: int) -> dict[str, Any]:
        """Give the JSON object that has `key`; who answers otherwise is no relay of ours."""
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, dict) and key in found:
            return found
        raise Unreachable(
            f"What answers at {self._base} is not a hermes-bridge relay (HTTP {status}).",
            hint="Check the address (--relay-url), and whether a proxy answers in its place.",
        )

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        if self._token:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        try:
            connection.connect()
            connection.sock.settimeout(_SILENT_S)
            connection.request(method, path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"No relay answers at {self._base} ({type(error).__name__}).",
                hint="Is it running (hermes-bridge serve)? Is the address right (--relay-url)?",
            ) from None
