"""A process that tests start, look at and end: the ground of `Gateway` and `RelayProcess`."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Child:
    """One process at a time, in a session and a folder of its own; it may be started again."""

    process: subprocess.Popen[bytes] | None = None

    def spawn(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        out: str,
        err: str | None = None,
    ) -> None:
        """Start it; what it says is appended to files of the folder (`err` None: all to `out`)."""
        assert not self.running, f"{command[0]} runs already"
        with (folder / out).open("ab") as said, (folder / (err or out)).open("ab") as erred:
            self.process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=folder,
                stdout=said,
                stderr=erred,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was not started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL it and what it started, as a crash of the machine would."""
        if self.process is not None:
            if self.running:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def cpu_s(self) -> float:
        """The CPU time that it took so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_kib(self) -> int:
        """The memory that it holds now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


def plain_env(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without anything of the one who runs the tests."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
        **(more or {}),
    }


def text_of(file: Path) -> str:
    """What a log holds now; nothing when there is none yet."""
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
