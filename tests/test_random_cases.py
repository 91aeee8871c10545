"""The random tests try the same cases each time, in whatever order, and with whatever imported, they run."""

import importlib

from hypothesis import given, settings
from hypothesis import strategies as st


def test_the_same_cases_are_drawn_whatever_was_imported_before(tmp_path, monkeypatch):
    drawn = []

    @settings(max_examples=100, derandomize=True)
    @given(st.integers(0, 10**12), st.text())
    def draw(number, text):
        drawn.append((number, text))

    draw()
    before, drawn[:] = list(drawn), []
    (tmp_path / "one_more.py").write_text("".join(f"X{k} = {k * 10**9 + 7}\nY{k} = 'word {k}'\n" for k in range(1, 100)))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("one_more")
    draw()
    assert drawn == before
