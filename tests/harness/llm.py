"""A scripted model behind an OpenAI-compatible server: what it says is decided by the test.

`when(pattern, *steps)` binds a pattern to steps. A request is matched on its last user message;
the step is chosen by how many tool results follow that message, so the server keeps no state of a
conversation and any number of bots can share it. Texts and arguments may hold `{name}` of the
pattern's groups, `{result}` (the last tool result), `{answer}` (what an asked agent said in it) and
`{text}` (the whole last user message).
The newest rule that matches wins. Nothing matches: the model echoes.
"""

import argparse
import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "scripted"


@dataclass(frozen=True)
class Say:
    """The model answers with a text, at once, after a delay (s) or when a gate opens.

    `pace` is the time (s) between two pieces of an answer that is streamed.
    """

    text: str
    delay: float = 0.0
    gate: threading.Event | None = None
    pace: float = 0.0


@dataclass(frozen=True)
class Call:
    """The model calls a tool; `beside` is text that comes with the call."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    beside: str | None = None
    delay: float = 0.0
    gate: threading.Event | None = None


@dataclass(frozen=True)
class Fail:
    """The model's server answers with an error."""

    status: int = 400
    message: str = "scripted failure"
    delay: float = 0.0
    gate: threading.Event | None = None


Step = Say | Call | Fail


@dataclass(frozen=True)
class Asked:
    """One request that the model got."""

    at: float
    model: str
    text: str
    """The last user message."""
    results: list[str]
    """Tool results after it, oldest first."""
    tools: list[str]
    messages: list[dict[str, Any]]
    stream: bool


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    steps: tuple[Step, ...]
    model: str | None


class ScriptedModel:
    """The server: `start()`, `url`, `when(...)`, `wait_for(...)`, `asked`, `stop()`."""

    def __init__(self, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self._rules: list[_Rule] = []
        self._news = threading.Condition()
        self._server = _Server(("127.0.0.1", port), _Door)
        self._server.model = self
        self._thread = threading.Thread(target=self._serve, name="scripted-model", daemon=True)
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "ScriptedModel":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def when(self, pattern: str, *steps: Step, model: str | None = None) -> None:
        """From now on, answer a last user message that `pattern` is found in with `steps`."""
        rule = _Rule(re.compile(pattern, re.DOTALL), steps, model)
        with self._news:
            self._rules.insert(0, rule)

    def wait_for(
        self,
        pattern: str,
        *,
        count: int = 1,
        timeout: float = 60,
        where: Callable[[Asked], bool] = lambda _: True,
    ) -> Asked:
        """Block until `count` requests matched `pattern`; return the last of them."""

        def found() -> list[Asked]:
            return [a for a in self.asked if re.search(pattern, a.text, re.DOTALL) and where(a)]

        with self._news:
            if not self._news.wait_for(lambda: len(found()) >= count, timeout):
                seen = [a.text[-200:] for a in self.asked]
                raise AssertionError(f"the model was not asked {pattern!r} x{count}; asked: {seen}")
            return found()[count - 1]

    def texts(self, pattern: str = "") -> list[str]:
        """Last user messages of all requests that match, in order, first request of a turn only."""
        with self._news:
            return [a.text for a in self.asked if not a.results and re.search(pattern, a.text)]

    def note(self, body: dict[str, Any]) -> Asked:
        messages = body.get("messages") or []
        last = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
        after = messages[last + 1 :]
        asked = Asked(
            at=time.time(),
            model=str(body.get("model")),
            text=_flat(messages[last].get("content")) if last >= 0 else "",
            results=[_flat(m.get("content")) for m in after if m.get("role") == "tool"],
            tools=[t["function"]["name"] for t in body.get("tools") or [] if "function" in t],
            messages=messages,
            stream=bool(body.get("stream")),
        )
        with self._news:
            self.asked.append(asked)
            self._news.notify_all()
        return asked

    def decide(self, asked: Asked) -> Step:
        with self._news:
            rules = list(self._rules)
        for rule in rules:
            match = rule.pattern.search(asked.text)
            if match is None or rule.model not in (None, asked.model) or not rule.steps:
                continue
            step = rule.steps[min(len(asked.results), len(rule.steps) - 1)]
            if isinstance(step, Call) and len(asked.results) >= len(rule.steps):
                return Say("done")  # a script that ends in a call must not call for ever
            known = {k: v or "" for k, v in match.groupdict().items()}
            known |= {"text": asked.text, "result": asked.results[-1] if asked.results else ""}
            known["answer"] = _answer(known["result"])
            return _filled(step, known)
        if asked.results:
            return Say("done: " + asked.results[-1][:300])
        return Say("echo: " + asked.text[:300])

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)


def _flat(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if isinstance(part, dict))


def _answer(result: str) -> str:
    try:
        return str(json.loads(result)["answer"])
    except (ValueError, KeyError, TypeError):
        return result


def _filled(step: Step, known: dict[str, str]) -> Step:
    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], m[0]), value)
        if isinstance(value, dict):
            return {k: fill(v) for k, v in value.items()}
        if isinstance(value, list):
            return [fill(v) for v in value]
        return value

    if isinstance(step, Say):
        return Say(fill(step.text), step.delay, step.gate, step.pace)
    if isinstance(step, Call):
        return Call(step.tool, fill(step.args), step.beside, step.delay, step.gate)
    return step


def _offered(call: Call, tools: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Find the tool under the name that Hermes offers: prefixed by MCP, or behind `tool_call`."""
    functions = {t["function"]["name"]: t["function"] for t in tools if "function" in t}
    if call.tool in functions:
        return call.tool, call.args
    for name in functions:
        if name.endswith("__" + call.tool):
            return name, call.args
    if "tool_call" in functions:
        hidden = re.findall(r"mcp__\w+", json.dumps(tools))
        name = next((n for n in hidden if n.endswith("__" + call.tool)), call.tool)
        properties = functions["tool_call"].get("parameters", {}).get("properties", {})
        one = {"name": name, "arguments": call.args}
        return "tool_call", {"calls": [one]} if "calls" in properties else one
    return call.tool, call.args


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.partition("?")[0].rstrip("/").endswith("/models"):
            self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if not self.path.endswith("/chat/completions"):
            return self._json(404, {"error": {"message": "not found"}})
        model = self.server.model
        step = model.decide(model.note(body))
        if step.delay:
            model.stopping.wait(step.delay)
        while step.gate and not step.gate.wait(0.1) and not model.stopping.is_set():
            pass
        if isinstance(step, Fail):
            return self._json(step.status, {"error": {"message": step.message}})
        message, finish = self._message(step, body.get("tools") or [])
        if body.get("stream"):
            pace = step.pace if isinstance(step, Say) else 0.0
            return self._stream(body, message, finish, pace)
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return self._json(200, {**_head(body, "chat.completion"), "choices": [choice], **_usage()})

    def _message(self, step: Say | Call, tools: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
        if isinstance(step, Say):
            return {"role": "assistant", "content": step.text}, "stop"
        name, args = _offered(step, tools)
        call = {
            "id": "call_" + uuid.uuid4().hex[:12],
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args)},
        }
        return {"role": "assistant", "content": step.beside, "tool_calls": [call]}, "tool_calls"

    def _json(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(
        self, body: dict[str, Any], message: dict[str, Any], finish: str, pace: float
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        head = _head(body, "chat.completion.chunk")
        for delta, reason in _deltas(message, finish):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            self._event({**head, "choices": [choice]})
            time.sleep(pace)
        self._event({**head, "choices": [], **_usage()})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    model = body.get("model") or MODEL
    return {
        "id": "c-" + uuid.uuid4().hex,
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _usage() -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}


def _deltas(message: dict[str, Any], finish: str) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    content = message.get("content") or ""
    for start in range(0, len(content), 500):
        yield {"content": content[start : start + 500]}, None
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {**call, "index": 0, "function": {"name": name, "arguments": ""}}
        yield {"tool_calls": [opening]}, None
        yield {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}, None
    yield {}, finish


def main() -> None:
    """Serve by itself. Rules: a JSON list of {match, say | call + args, delay?, model?} lists."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--rules", help='[{"match": "...", "steps": [{"say": ".."}, ...]}]')
    chosen = arguments.parse_args()
    model = ScriptedModel(chosen.port)
    for rule in json.loads(Path(chosen.rules).read_text("utf-8")) if chosen.rules else []:
        model.when(rule["match"], *map(_step, rule["steps"]), model=rule.get("model"))
    model.start()
    print(model.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        model.stop()


def _step(row: dict[str, Any]) -> Step:
    delay = float(row.get("delay", 0))
    if "say" in row:
        return Say(row["say"], delay)
    if "call" in row:
        return Call(row["call"], row.get("args", {}), delay=delay)
    return Fail(row.get("status", 400), row.get("message", "scripted failure"), delay)


if __name__ == "__main__":
    main()
