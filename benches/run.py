"""`make bench`: the relay's benchmarks one after the other, on a machine that does nothing else.

The other parts have their own: callback.py, connector.py, journal.py, plugin.py.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNS = (("core.py",), ("relay.py", "--floor"))


def main() -> None:
    for command in RUNS:
        print(f"== {' '.join(command)}", flush=True)
        subprocess.run([sys.executable, *command], cwd=HERE, check=True)


if __name__ == "__main__":
    main()
