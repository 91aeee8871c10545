"""The API against its own document, in a process of its own: no other process needs seconds to collect the cases."""

import subprocess
import sys
from pathlib import Path

import pytest

from random_cases import cases


@pytest.mark.timeout(cases(900))
def test_the_api_answers_as_its_document_says():
    options = ["-q", "--timeout=0", "-o", "addopts=--strict-markers", str(Path(__file__).with_name("schema_cases.py"))]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
