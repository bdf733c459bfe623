"""A real, headless Hermes gateway in a home of its own."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.process import Child, plain_env, text_of
from tests.harness.venvs import Venv

READY_LINE = "Press Ctrl+C to stop"  # before it, 0.22 queues inbound messages
HEAVY = [f"platforms/{name}" for name in ("feishu", "google_chat", "telegram")]
"""Platforms that nobody uses here and whose import takes a second of CPU."""
LOGS = ("gateway.out", "logs/gateway.log", "logs/agent.log", "logs/errors.log")


def base_config(llm_url: str, model: str) -> dict[str, Any]:
    """The quiet configuration: one model, no downloads, no notices, tools directly visible."""
    return {
        "model": {
            "provider": "custom",
            "default": model,
            "base_url": llm_url,
            "api_key": "sk-scripted",
            "context_length": 200_000,
        },
        "onboarding": {"seen": {"profile_build_offered": True}},
        "auxiliary": {"title_generation": {"enabled": False}},
        "security": {"tirith_enabled": False, "allow_lazy_installs": False},
        "agent": {"gateway_notify_interval": 0, "environment_probe": False},
        "gateway": {"multiplex_profiles": False},
        "tools": {"tool_search": {"enabled": "off"}},
        "plugins": {"enabled": [], "disabled": HEAVY},
    }


def merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Deep-merge mappings; anything else of `more` replaces."""
    out = dict(base)
    for key, value in more.items():
        here = out.get(key)
        both = isinstance(here, dict) and isinstance(value, Mapping)
        out[key] = merged(here, value) if both else value
    return out


class Gateway(Child):
    """One gateway process and its home; `start()` may be called again after `stop` or `kill`."""

    def __init__(
        self,
        venv: Venv,
        home: Path,
        *,
        llm_url: str,
        model: str = "scripted",
        config: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        plugins: Mapping[str, Path] | None = None,
    ) -> None:
        self.venv = venv
        self.home = home
        self.ready_s = 0.0
        (home / "home").mkdir(parents=True, exist_ok=True)
        for name, source in (plugins or {}).items():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, home / "plugins" / name, ignore=ignored, dirs_exist_ok=True)
        whole = merged(base_config(llm_url, model), config or {})
        self.config_file.write_text(yaml.safe_dump(whole, sort_keys=False), "utf-8")
        base = {"HERMES_HOME": str(home), "NO_COLOR": "1"}
        self.env = plain_env(home / "home", {**base, **(env or {})})

    @property
    def config_file(self) -> Path:
        return self.home / "config.yaml"

    def configure(self, more: Mapping[str, Any]) -> None:
        """Change settings of a gateway that does not run."""
        whole = yaml.safe_load(self.config_file.read_text("utf-8"))
        self.config_file.write_text(yaml.safe_dump(merged(whole, more), sort_keys=False), "utf-8")

    def cli(self, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a `hermes` command in this home."""
        return subprocess.run(
            [str(self.venv.script("hermes")), *args],
            env=self.env,
            cwd=self.home,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )

    def launch(self) -> "Gateway":
        """Start the process and do not wait."""
        self._began = time.monotonic()
        self._log_offset = len(self.log("logs/gateway.log"))
        command = [str(self.venv.script("hermes")), "gateway", "run"]
        self.spawn(command, folder=self.home, env=self.env, out="gateway.out")
        return self

    def start(self, timeout: float = 120) -> "Gateway":
        """Start, and wait until the gateway takes messages."""
        return self.launch().wait_ready(timeout)

    def wait_ready(self, timeout: float = 120) -> "Gateway":
        """Wait until a launched gateway takes messages."""
        self._until(self._is_ready, timeout, "ready")
        self.ready_s = time.monotonic() - self._began
        return self

    def wait_platform(self, name: str, state: str = "connected", timeout: float = 60) -> None:
        """Wait until `gateway_state.json` shows the platform in a state."""
        self._until(lambda: self.platform(name).get("state") == state, timeout, f"{name} {state}")

    def wait_log(self, text: str, timeout: float = 60, name: str = "logs/gateway.log") -> None:
        """Wait until a log holds a text."""
        self._until(lambda: text in self.log(name), timeout, f"{text!r} in {name}")

    def state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.home / "gateway_state.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if found.get("pid") == self.pid else {}

    def platform(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.state().get("platforms", {}).get(name, {})
        return found

    def log(self, name: str = "logs/gateway.log") -> str:
        return text_of(self.home / name)

    def logs(self) -> str:
        """All logs of this home, for a person who looks at a failed test."""
        parts = [f"--- {self.home.name}/{name}\n{self.log(name)[-12_000:]}" for name in LOGS]
        return "\n".join(parts)

    def stop(self, timeout: float = 25) -> int | None:
        """SIGTERM, as an operator does; SIGKILL when it does not end. Returns the exit code."""
        if self.process is None:
            return None
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def restart(self) -> "Gateway":
        self.stop()
        return self.start()

    def __enter__(self) -> "Gateway":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_ready(self) -> bool:
        fresh = self.log("logs/gateway.log")[self._log_offset :]
        return self.state().get("gateway_state") == "running" and READY_LINE in fresh

    def _until(self, condition: Any, timeout: float, what: str) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if not self.running:
                code = self.process.returncode if self.process else None
                raise AssertionError(f"the gateway ended with {code} before {what}\n{self.logs()}")
            if time.monotonic() > end:
                raise AssertionError(f"not {what} after {timeout} s: {self.state()}\n{self.logs()}")
            time.sleep(0.05)  # the gateway tells its state in files only
