"""A plan of file changes: shown as a diff, written atomically with backups, undone when one fails."""

import contextlib
import difflib
import errno
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hermes_bridge.errors import HermesBridgeError


class CannotWrite(HermesBridgeError):
    """The Hermes home does not let us write. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True)
class Change:
    """One file and what it will hold; `after` `None` removes it. `secret` keeps it out of diffs."""

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    secret: bool = False


@dataclass
class Plan:
    """Changes in the order in which they are made."""

    home: Path
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(
        self, path: Path, after: bytes | None, *, mode: int = 0o644, secret: bool = False
    ) -> None:
        """Plan what a file will hold, unless it does already."""
        before = read(path)
        if before != after:
            self.changes.append(Change(path, before, after, mode, secret))

    def diff(self) -> str:
        """Show the changes for a person; values of `.env` are masked, files of ours only named."""
        settings_first = sorted(self.changes, key=lambda change: change.path.parent != self.home)
        return "".join(_diff(change, self.home) for change in settings_first)

    def apply(self) -> None:
        """Make all changes or none, also when it is interrupted. Raises: CannotWrite."""
        done: list[Change] = []
        try:
            for change in self.changes:
                done.append(change)
                write(change.path, change.after, mode=change.mode, like=self.home)
        except BaseException as error:
            for change in reversed(done):
                with contextlib.suppress(OSError):
                    write(change.path, change.before, mode=change.mode, like=self.home)
            if not isinstance(error, OSError):
                raise
            raise CannotWrite(
                f"Nothing was changed: {error.filename or self.home} cannot be written "
                f"({error.strerror}).",
                hint="Run this as the user that owns the Hermes home "
                "(in Docker: docker exec -u hermes ...).",
            ) from error


def read(path: Path) -> bytes | None:
    """Give a file's bytes, `None` when there is none. Raises: CannotWrite."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be read ({error.strerror}).",
            hint="Run this as the user that owns the Hermes home.",
        ) from error


def write(path: Path, content: bytes | None, *, mode: int, like: Path) -> None:
    """Replace a file in one step; a file that is there keeps its rights and its owner."""
    target = path.resolve() if path.is_symlink() else path
    if content is None:
        target.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # only an empty folder goes
        return
    for folder in reversed([p for p in target.parents if not p.exists()]):
        folder.mkdir()
        _own(folder, like)
    old = target.stat() if target.exists() else None
    if old is not None and os.geteuid() not in (0, old.st_uid):
        _write_into(target, content)  # a new file would belong to us
        return
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).chmod(old.st_mode & mode_mask(mode) if old else mode)
        _own(Path(beside), target if old else like)
        Path(beside).replace(target)
    except OSError as error:
        Path(beside).unlink(missing_ok=True)
        if error.errno != errno.EBUSY:
            raise
        _write_into(target, content)  # a file that is mounted by itself cannot be replaced
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _write_into(target: Path, content: bytes) -> None:
    with target.open("r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def mode_mask(mode: int) -> int:
    """A secret file loses the rights of others even when it had them."""
    return 0o700 if mode == 0o600 else 0o777


def _own(path: Path, like: Path) -> None:
    """Root that writes into another user's home leaves files to that user."""
    if os.geteuid() == 0 and like.exists():
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def _diff(change: Change, home: Path) -> str:
    name = (
        str(change.path.relative_to(home)) if change.path.is_relative_to(home) else str(change.path)
    )
    if change.path.parent != home:  # a plugin's own files, and the record with its originals
        done = "change" if change.after is not None else "remove"
        return f"{'add' if change.before is None else done} {name}\n"
    before, after = _lines(change.before, change), _lines(change.after, change)
    return "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(
            before,
            after,
            f"{name} (now)" if change.before is not None else "(no file)",
            f"{name} (then)" if change.after is not None else "(no file)",
            n=2,
        )
    )


def _lines(content: bytes | None, change: Change) -> list[str]:
    lines = (content or b"").decode("utf-8", "replace").splitlines(keepends=True)
    return [_masked(line) for line in lines] if change.secret else lines


def _masked(line: str) -> str:
    name, equals, value = line.partition("=")
    return f"{name}=********\n" if equals and value.strip() and not name.startswith("#") else line
