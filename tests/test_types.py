"""The types, as mypy sees them: a test like the others, so that it runs beside them."""

import subprocess
import sys
from pathlib import Path


def test_nothing_is_of_another_type_than_it_says():
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
