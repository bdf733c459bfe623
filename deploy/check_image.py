"""Build the image, run it as compose.yaml does, and check what docs/guides/deploy.md promises.

    python deploy/check_image.py
    python deploy/check_image.py --engine podman --image hermes-bridge     # built already

Containers run without a network and are asked from within: nothing listens on this machine.
What it makes (containers, a volume) it removes; the image stays.
"""

import argparse
import json
import re
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
NAME = "hermes-bridge-check"
PASSWORD = "checked-checked-checked"
CONFIG = f"agents: [{{name: a, token: checked-checked-0001}}]\nui: {{password: {PASSWORD}}}\n"
LOCKED = "--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges"
PROCESSES = """
for p in /proc/[0-9]*; do
    [ "$(cat $p/comm)" = sh ] || echo "$(basename $p) $(stat -c %u $p) $(cat $p/comm)"
done
"""
METRICS = """
import os, sys, urllib.error, urllib.request as r
asked = r.Request('http://127.0.0.1:' + os.environ['PORT'] + '/metrics')
if sys.argv[1:]: asked.add_header('Authorization', 'Bearer ' + sys.argv[1])
try: print(r.urlopen(asked, timeout=9).status)
except urllib.error.HTTPError as error: print(error.code)
"""


class Failed(Exception):
    """Something is not as promised."""


class Engine:
    """Docker, or what is called like it."""

    def __init__(self, command: str, image: str, run: str) -> None:
        self.command, self.image = shlex.split(command), image
        self.locked = shlex.split(f"--network none {LOCKED} {run}")

    def call(self, *words: str, bad: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command of the engine; without `bad` it has to end well."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, timeout=900)
        if done.returncode and not bad:
            raise Failed(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
        return done

    def once(self, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run the image with other words than `serve`, and remove the container."""
        return self.call("run", "--rm", *self.locked, *options, self.image, *words, bad=True)

    def start(self, *options: str) -> None:
        self.call("run", "--detach", "--name", NAME, *self.locked, *options, self.image)

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call("exec", NAME, *words, bad=True)

    def log(self) -> str:
        done = self.call("logs", NAME)
        return done.stdout + done.stderr

    def remove(self) -> None:
        self.call("rm", "--force", NAME, bad=True)


def check(promise: str, kept: object, why: str = "") -> None:
    """Say that a promise is kept, or end."""
    if not kept:
        raise Failed(f"{promise}: no. {why}")
    print(f"  {promise}", flush=True)


def health_check() -> list[str]:
    """Give the command of the Dockerfile's HEALTHCHECK."""
    text = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
    found = re.search(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def healthy(engine: Engine) -> float:
    """Wait until the health check is content; give the seconds that it took."""
    began = time.monotonic()
    while engine.inside(*health_check()).returncode:
        state = engine.call("inspect", "--format", "{{.State.Running}}", NAME).stdout.strip()
        if state != "true" or time.monotonic() > began + 60:
            raise Failed(f"it does not become healthy:\n{engine.log()}")
        time.sleep(0.2)
    return time.monotonic() - began


def stops(engine: Engine) -> None:
    began = time.monotonic()
    engine.call("stop", "--time", "30", NAME)
    took = time.monotonic() - began
    code = engine.call("inspect", "--format", "{{.State.ExitCode}}", NAME).stdout.strip()
    check(f"SIGTERM ends it in 10 s with code 0 ({took:.1f} s)", code == "0" and took < 10, code)
    check("nothing was left unstored", "rows_not_stored=0" in engine.log(), engine.log())


def other_verbs(engine: Engine) -> None:
    done = engine.once("--version")
    check(f"another verb runs: {done.stdout.strip()}", not done.returncode, done.stderr)
    done = engine.once("demo")
    check("two agents ask and answer in it (demo)", not done.returncode, done.stdout + done.stderr)
    options = ("--env", "HERMES_BRIDGE_CONFIG_TEXT=agents: 7")
    done = engine.once("serve", options=options)
    words = (done.stdout + done.stderr).strip()
    check("a wrong configuration ends it with words", done.returncode == 2 and words, words)
    print("    " + words.replace("\n", "\n    "))


def mounted(engine: Engine, folder: Path) -> None:
    file = folder / "config.yaml"
    file.write_text(CONFIG, "utf-8")
    file.chmod(0o644)
    engine.start("-v", f"{file}:/app/config.yaml:ro", "-v", f"{NAME}:/data")
    check(f"configuration by mount; healthy after {healthy(engine):.1f} s", True)
    rows = [line.split() for line in engine.inside("sh", "-c", PROCESSES).stdout.splitlines()]
    check(
        "every process is of user 10001", rows and {row[1] for row in rows} == {"10001"}, str(rows)
    )
    check("tini is the first of them", ["1", "10001", "tini"] in rows, str(rows))
    check("it cannot write beside /data", engine.inside("touch", "/opt/x", "/app/x").returncode)
    found = engine.inside("sh", "-c", "stat -c '%u %a %n' /data /data/*").stdout
    check("the store is in /data, for that user alone", "10001 700 /data\n" in found, found)
    codes = [engine.inside("python", "-c", METRICS, *w).stdout.strip() for w in ((), (PASSWORD,))]
    check("/metrics wants the password", codes == ["401", "200"], str(codes))
    engine.call("kill", "--signal", "HUP", NAME)
    end = time.monotonic() + 20
    while "reload.done" not in engine.log() and time.monotonic() < end:
        time.sleep(0.2)
    check("SIGHUP reads the file again", "reload.done" in engine.log(), engine.log())
    pid = next(row[0] for row in rows if row[2] == "hermes-bridge")
    engine.inside("sh", "-c", f"kill -STOP {pid}")
    check("a relay that hangs is not healthy", engine.inside(*health_check()).returncode)
    engine.inside("sh", "-c", f"kill -CONT {pid}")
    healthy(engine)
    stops(engine)
    engine.remove()


def from_environment(engine: Engine) -> None:
    options = ("--env", f"HERMES_BRIDGE_CONFIG_TEXT={CONFIG}", "--env", "PORT=9797")
    engine.start(*options, "-v", f"{NAME}:/data")
    check(f"configuration by environment; healthy after {healthy(engine):.1f} s", True)
    stops(engine)
    engine.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="docker", help="docker, podman, with their options")
    parser.add_argument("--image", help="an image that is built already")
    parser.add_argument("--build", default="", help="more options for `build`")
    parser.add_argument("--run", default="", help="more options for `run`")
    options = parser.parse_args()
    engine = Engine(options.engine, options.image or "hermes-bridge", options.run)
    try:
        if not options.image:
            print("building (minutes, the first time)", flush=True)
            more = shlex.split(options.build)
            engine.call("build", "-f", str(DOCKERFILE), "-t", engine.image, *more, str(ROOT))
        size = int(engine.call("image", "inspect", "--format", "{{.Size}}", engine.image).stdout)
        print(f"the image: {size / 1_000_000:.0f} MB with its base")
        other_verbs(engine)
        with tempfile.TemporaryDirectory(prefix="hermes-bridge-check-") as folder:
            Path(folder).chmod(0o755)
            mounted(engine, Path(folder))
        from_environment(engine)
    except Failed as error:
        raise SystemExit(f"FAILED: {error}") from None
    finally:
        engine.remove()
        engine.call("volume", "rm", "--force", NAME, bad=True)
    print("all as promised")


if __name__ == "__main__":
    main()
