"""Replay the Dockerfile where there is no Docker: its build and its start, in a folder of their own.

    python deploy/replay.py

Done as written: the build stage (what the context would hold, `COPY`, `RUN`), the variables, the
command, the health check, SIGTERM. Done otherwise: this Python stands for the base image, the second
stage's packages and user are left out, and `tini` is left out where it is not installed.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from socket import socket

ROOT = Path(__file__).resolve().parents[1]
PLACE = "/opt/hermes-bridge"
CONFIG = "agents: [{name: a, token: replayed-replayed-0001}]\nui: {password: replayed-replayed}\n"


def steps() -> list[tuple[str, str]]:
    """Give the instructions of the Dockerfile: the word and the rest, without comments."""
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = [line.split(None, 1) for line in joined if line.strip()]
    return [(word.upper(), " ".join(rest.split())) for word, rest in found]


def stage(number: int) -> list[tuple[str, str]]:
    """Give the instructions of one stage, counted from 0."""
    starts = [n for n, (word, _) in enumerate(steps()) if word == "FROM"]
    end = starts[number + 1] if number + 1 < len(starts) else None
    return steps()[starts[number] + 1 : end]


def context(folder: Path) -> Path:
    """Copy what the build would be sent: what `Dockerfile.dockerignore` lets through."""
    folder.mkdir()
    for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").split():
        if line.startswith("!"):
            source = ROOT / line[1:]
            if source.is_dir():
                no_caches = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / source.name, ignore=no_caches)
            else:
                shutil.copy(source, folder)
    return folder


def variables(found: list[tuple[str, str]], env: dict[str, str], place: Path) -> dict[str, str]:
    """Give `env` with the stage's variables."""
    out = dict(env)
    for word, rest in found:
        if word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                out[name] = value.replace(PLACE, str(place)).replace("$PATH", out["PATH"])
    return out


def build(folder: Path, place: Path) -> None:
    """Run the build stage; its result lies in `place`."""
    source, work = context(folder / "context"), folder / "src"
    work.mkdir()
    env = variables(stage(0), dict(os.environ), place)
    for word, rest in stage(0):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                if (source / name).is_dir():
                    shutil.copytree(source / name, work / target)
                else:
                    shutil.copy(source / name, work / target)
        elif word == "RUN":
            command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", rest)
            command = command.replace(PLACE, str(place))
            print("RUN", command, flush=True)
            subprocess.run(["/bin/sh", "-ec", command], cwd=work, env=env, check=True)


def start(folder: Path, place: Path) -> None:
    """Start the command as the image does, ask for its health, and end it by its signal."""
    final = dict(stage(1))
    data = folder / "data"
    data.mkdir()
    (folder / "config.yaml").write_text(CONFIG, "utf-8")
    env = variables(stage(1), {"PATH": os.environ["PATH"]}, place)
    env["HERMES_BRIDGE_CONFIG"] = env["HERMES_BRIDGE_CONFIG"].replace("/app", str(folder))
    env["PORT"] = str(_free_port())
    command = _words(final["ENTRYPOINT"]) + _words(final["CMD"])
    if shutil.which(command[0]) is None:
        command = command[command.index("--") + 1 :]
    print("ENTRYPOINT", *command, flush=True)
    process = subprocess.Popen(command, cwd=data, env=env)
    health = _words(final["HEALTHCHECK"].partition("CMD")[2])
    try:
        give_up = time.monotonic() + 20
        while subprocess.run(health, env=env, stderr=subprocess.DEVNULL).returncode:
            if process.poll() is not None or time.monotonic() > give_up:
                raise SystemExit("it does not become healthy")
            time.sleep(0.2)
        print("HEALTHCHECK healthy", flush=True)
        process.send_signal(getattr(signal, final["STOPSIGNAL"]))
        code = process.wait(15)
    finally:
        process.kill()
    if code:
        raise SystemExit(f"it ended with code {code}")
    print(final["STOPSIGNAL"], "code 0; left in the volume:", *os.listdir(data))


def _words(array: str) -> list[str]:
    """Read the JSON form of a command."""
    found: list[str] = json.loads(array)
    return found


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-bridge-replay-") as name:
        folder = Path(name)
        place = folder / "opt"
        build(folder, place)
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        print(f"built: {size / 1_000_000:.0f} MB beside the base image")
        start(folder, place)


if __name__ == "__main__":
    main()
