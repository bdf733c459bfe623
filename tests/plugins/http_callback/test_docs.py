"""The reference names every setting, state, kind and command there is."""

import argparse
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import missing

from hermes_bridge.plugins.http_callback import cli, custody, signing
from hermes_bridge.plugins.http_callback.config import read_settings

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs/reference/callback.md").read_text("utf-8")
GUIDE = (ROOT / "docs/guides/callback.md").read_text("utf-8")


class Recorder(dict[str, object]):
    """A mapping that notes which settings are asked for."""

    def __init__(self) -> None:
        super().__init__({"_": 1})
        self.asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.asked.add(key)
        return default


def test_every_setting_is_in_the_reference() -> None:
    asked = Recorder()
    read_settings(asked, lambda name: None)
    assert len(asked.asked) > 30
    assert [name for name in sorted(asked.asked) if f"`{name}`" not in REFERENCE] == []


def test_every_variable_is_in_the_reference() -> None:
    names: set[str] = set()
    read_settings({}, lambda name: names.add(name))  # type: ignore[func-returns-value]
    assert [name for name in sorted(names) if f"`{name}`" not in REFERENCE] == []


def test_every_state_profile_and_command_is_in_the_reference() -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for name in (*custody.STATES, *signing.PROFILES):
        assert f"`{name}`" in REFERENCE, name
    for name in commands.choices:
        assert re.search(rf"`{name}[ `]", REFERENCE), name
    assert dataclasses.fields(signing.Keyring)


def code(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("language", ["ruby", "node"])
def test_the_guides_check_in_another_language_accepts_what_is_sent(
    language: str, tmp_path: Path
) -> None:
    program = shutil.which(language)
    if program is None:  # without REQUIRE=all: its check is documented, not run here
        missing(language)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = '{"content": "olá 😊\u2028"}'.encode()
    (tmp_path / "body").write_bytes(body)
    ring = signing.Keyring(signing.read_secret(secret))
    import time

    sent = signing.headers("default", ring, signing.Letter("m1", body, int(time.time()), 1), "t")
    if language == "ruby":
        lines = ", ".join(f"{name!r} => {value!r}" for name, value in sent.items())
        script = (
            "require 'openssl'; require 'base64'\n"
            "module Rack; module Utils; def self.secure_compare(a, b); a == b; end; end; end\n"
            + code("ruby")
            + f"h = {{{lines}}}; b = File.binread('body'); s = '{secret}'\n"
            + "exit(genuine?(h, b, s) && genuine_legacy?(h, b, s) && !genuine?(h, b + ' ', s) ? 0 : 1)\n"
        )
        file = tmp_path / "check.rb"
    else:
        headers = {name.lower(): value for name, value in sent.items()}
        script = (
            code("js")
            + f"\nimport {{ readFileSync }} from 'node:fs';\nconst h = {headers}, s = '{secret}';\n"
            + "const b = readFileSync('body'), bad = Buffer.concat([b, Buffer.from(' ')]);\n"
            + "process.exit(genuine(h, b, s) && genuineLegacy(h, b, s) && !genuine(h, bad, s) ? 0 : 1);\n"
        )
        file = tmp_path / "check.mjs"
    file.write_text(script, "utf-8")
    done = subprocess.run(
        [str(program), str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
