"""The harness itself: it must not be the thing that fails."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.harness import venvs
from tests.harness.llm import Call, Fail, Say, ScriptedModel
from tests.harness.venvs import Unavailable


def ask(llm: ScriptedModel, text: str, *, stream: bool = False, results: int = 0) -> str:
    messages: list[dict[str, object]] = [{"role": "user", "content": text}]
    messages += [{"role": "tool", "content": f"r{i}"} for i in range(results)]
    tools = [{"type": "function", "function": {"name": "mcp__x__reply"}}]
    body = {"model": "m", "messages": messages, "tools": tools, "stream": stream}
    request = urllib.request.Request(llm.url + "/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read().decode()


def test_the_model_says_what_the_newest_matching_rule_says(llm: ScriptedModel) -> None:
    llm.when("who", Say("old"))
    llm.when(r"who is (?P<name>\w+)", Say("{name} is you"))
    answer = json.loads(ask(llm, "who is ann"))
    assert answer["choices"][0]["message"]["content"] == "ann is you"
    assert llm.wait_for("who").text == "who is ann"


def test_the_model_calls_the_tool_under_the_offered_name_then_goes_on(llm: ScriptedModel) -> None:
    llm.when("q", Call("reply", {"answer": "{text}"}), Say("got {result}"))
    first = json.loads(ask(llm, "q1"))["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (first["name"], json.loads(first["arguments"])) == ("mcp__x__reply", {"answer": "q1"})
    second = ask(llm, "q1", stream=True, results=1)
    assert '"content": "got r0"' in second
    assert second.endswith("data: [DONE]\n\n")


def test_the_model_can_fail(llm: ScriptedModel) -> None:
    llm.when("q", Fail(429, "slow down"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(llm, "q")
    assert refused.value.code == 429
    refused.value.close()


@pytest.mark.timeout(400)
def test_an_environment_that_cannot_be_built_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_BRIDGE_TEST_CACHE", str(tmp_path))
    monkeypatch.setitem(venvs.REQUIREMENTS, "broken", ("./no-such-folder",))
    with pytest.raises(Unavailable, match="pip failed: ERROR"):
        venvs.build("broken")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
