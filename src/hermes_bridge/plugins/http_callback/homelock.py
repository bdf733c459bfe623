"""Which process delivers for a Hermes home: a file lock that dies with its holder."""

import os
from pathlib import Path


class HomeLock:
    """The right to deliver for a home; held by one process, given back when it dies."""

    def __init__(self, path: Path) -> None:
        """Name the lock file."""
        self._path = path
        self._fd: int | None = None
        self.exclusive = True

    def take(self) -> bool:
        """Try to get it; True when this process has it."""
        if self._fd is not None:
            return True
        try:
            import fcntl
        except ImportError:
            # No such locks here: the leases alone keep two workers apart.
            self.exclusive = False
            return True
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd
        return True

    def give_back(self) -> None:
        """Let another process have it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
