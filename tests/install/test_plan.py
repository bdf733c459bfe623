"""A plan of file changes: all of them or none, whatever ends it."""

from pathlib import Path

import pytest

from hermes_bridge.install import files
from hermes_bridge.install.files import Plan


def test_a_plan_that_is_interrupted_undoes_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(b"as it was")
    plan = Plan(tmp_path)
    plan.put(tmp_path / "old", b"changed")
    plan.put(tmp_path / "new", b"made")
    write, written = files.write, list[Path]()

    def interrupted(path: Path, content: bytes | None, *, mode: int, like: Path) -> None:
        write(path, content, mode=mode, like=like)
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan.apply()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old": b"as it was"}
