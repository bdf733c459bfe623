"""`make demo-hermes` is what a newcomer sees first: it runs in the suite."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.venvs import Venv

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.hermes, pytest.mark.timeout(600)]


def test_the_demo_with_two_real_bots_gets_its_answer(hermes: Venv) -> None:
    script = ROOT / "examples" / "two_hermes_bots" / "run.py"
    done = subprocess.run(
        [sys.executable, str(script), "--hermes", hermes.version],
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "It is vpn.example.org." in done.stdout
