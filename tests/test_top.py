"""`fairlead top`: what its keys do, and what is on its screen."""

import os
import pty
import re
import select
import subprocess

import pytest
from rich.console import Console

from conftest import FAIRLEAD
from fairlead.cli.top_screen import View, chosen, frame, keys_in, pressed, remember
from fairlead.cli.usage import usage_table
from fairlead.text_tables import printed


def queue(name, running=0, waiting=0, share=0.0):
    mine = {"name": name, "running": running, "waiting": waiting, "used": {"cpu": int(9000 * share)}}
    return {**mine, "dominant_share": share, "dominant_resource": "cpu"}


def job(number, name, leaf, status="running", tasks=1):
    mine = {"id": number, "name": name, "queue": leaf, "status": status, "tasks": tasks}
    return {**mine, "succeeded": 0, "failed": 0, "cancelled": 0, "argv": [], "user": "ada", "demand": {}, "submitted_at": 0.0}


RUNNING = [job(7, "train", "lab/a", tasks=3), job(9, "serve", "lab/b")]
SEEN = {
    "status": {"stalled": ""},
    "queues": [
        queue("/", 3, 2, 1.0), queue("idle"), queue("lab", 3, 2, 1.0), queue("lab/a", 1, 2, 0.4), queue("lab/b", 2, 0, 0.6),
        queue("lab/none"),
    ],
    "nodes": [{"name": "n", "status": "up", "capacity": {"cpu": 9000}}],
    "jobs": [*RUNNING, *(job(number, f"j{number}", "lab/a", "waiting") for number in range(60, 20, -1))],
}  # fmt: skip


def test_it_says_whose_the_cards_of_nodes_are(monkeypatch):
    cards = [card(0, "used", 7, 1), card(1, "used", 7, 1), card(2, "free"), card(3, "drained"), card(4, "used")]
    node = {**SEEN["nodes"][0], "cards": cards}
    monkeypatch.setitem(SEEN, "nodes", [node])
    assert "n cards 0-1: 7.1, 2: free, 3: drained, 4: used" in screen(View())
    monkeypatch.setitem(SEEN, "nodes", [node] * 9)
    lines = screen(View(), height=40)
    assert sum(line.startswith("n cards") for line in lines) == 4
    assert "5 more nodes with cards: see `fairlead nodes`" in lines


def card(number, status, job=None, task=None):
    return {"card": number, "status": status, "job": job, "task": task, "queue": None, "user": None}


def after(*keys, view=None):
    view = view or View()
    for key in keys:
        view = pressed(view, key, SEEN)
    return view


def screen(view, height=30, width=100):
    history = {}
    remember(SEEN, history)
    console = Console(width=width, height=height, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(frame(SEEN, history, view, width, height, 1.0))
    return capture.get().splitlines()


def names(view):
    queues, jobs = chosen(view, SEEN)
    return [each["name"] for each in queues], [each["id"] for each in jobs]


def test_nodes_that_were_not_heard_since_the_restart_are_counted():
    nodes = [{**SEEN["nodes"][0], "unheard": ago} for ago in (None, 5.0, 5.0)]
    history = {}
    remember(SEEN, history)
    shown = printed(frame({**SEEN, "nodes": nodes}, history, View(), 100, 30, 2.0), width=100)
    assert "3 nodes (2 not heard since the restart), 3 running" in shown


def test_idle_queues_are_left_out_and_counted():
    assert names(View())[0] == ["lab", "lab/a", "lab/b"]
    assert names(after("i"))[0] == ["idle", "lab", "lab/a", "lab/b", "lab/none"]
    assert "2 idle queues hidden" in "\n".join(screen(View()))
    assert "idle queues" not in "\n".join(screen(after("i")))


def test_keys_sort_the_table_that_they_are_for():
    assert names(after("s"))[1] == sorted((each["id"] for each in SEEN["jobs"]), reverse=True)
    assert names(after("s", "s", "s"))[1][0] == 7, "by tasks"
    assert names(after("s", "s", "s", "s")) == names(View())
    assert names(after("\t", "s"))[0] == ["lab", "lab/b", "lab/a"], "by share"
    assert names(after("\t", "s", "s", "s"))[0][:2] == ["lab", "lab/a"], "by waiting"


def test_keys_filter_both_tables_by_what_is_typed():
    view = after("/", *"TRAX", "\x7f", "\r")
    assert (view.wanted, view.typing, names(view)) == ("TRA", False, ([], [7]))
    assert names(after("/", *"lab/b")) == (["lab/b"], [9])
    assert after("/", *"q", "\r").wanted == "q", "while one types no key does anything else"
    assert after("/", *"x", "\x1b") == View()
    assert after("\x1b", view=view).wanted == ""


def test_keys_scroll_no_further_than_there_is_something():
    assert after(*["\x1b[B"] * 3, "k").first == (0, 2)
    assert after("G", "j").first == (0, len(SEEN["jobs"]) - 1)
    assert after("G", "\x1b[5~", "g", "k").first == (0, 0)
    assert after("\t", "j", "j", "j", "j").first == (2, 0)
    shown = "\n".join(screen(after("G")))
    assert "j21" in shown
    assert "train" not in shown
    assert re.search(r"\d+ more jobs, 2 idle", shown)


@pytest.mark.parametrize("height", [24, 30, 50, 200])
@pytest.mark.parametrize("keys", ["", "i", "G", "\tG", "/lab", "/none of that"])
def test_it_fits_the_screen_with_its_keys_at_the_bottom(height, keys):
    lines = screen(after(*keys_in(keys)), height)
    assert len(lines) <= height
    assert ("Enter keeps it" if keys.startswith("/") else "q quits") in lines[-1]


JOB = {
    **RUNNING[0], "waiting": 2, "running": 1, "demand": {"cpu": 1000}, "cpu_seconds": None, "peak_memory": None, "at_most": None,
    "ray": False, "gang": False, "on": {}, "after": [], "fit": "", "priority": 0, "retries": 0, "time_limit": None, "grace": None,
    "exit_done": False, "signal": "SIGTERM", "revocable": False, "revoked": None, "argv": ["train"], "cwd": "/",
    "finished_at": None,
}  # fmt: skip
OPEN = {
    "job": JOB, "task": 1, "stream": "out", "log": "".join(f"line {k}\n" for k in range(50)),
    "why": {"job": 7, "text": "no node has room", "when": {"reason": "expected", "text": "within 3 min"}},
}  # fmt: skip


def test_enter_opens_the_chosen_job_and_c_cancels_it_if_y_follows(monkeypatch):
    monkeypatch.setitem(SEEN, "job", OPEN)
    view = after("j", "\r")
    assert (view.page, view.job) == ("job", 9)
    assert after("\t", "\r").page == "cluster", "the keys are for the queues"
    view = after("\r")
    lines = "\n".join(screen(view))
    for text in ("job        7 train", "job 7: no node has room", "expected: within 3 min", "line 2", "c cancels it"):
        assert text in lines
    assert "line 49" in "\n".join(screen(after(*["\x1b[6~"] * 9, view=view)))
    assert after("c", view=view).cancels == "asked"
    assert "cancel job 7? y" in screen(after("c", view=view))[-1]
    assert [after("c", key, view=view).cancels for key in "ynq"] == ["yes", "", ""]
    assert after("l", view=view).stream == "err"
    assert after("\x1b", view=view) == View()


def test_nodes_people_and_gpus_have_pages(monkeypatch):
    cards = [card(0, "used", 7, 1), card(1, "free")]
    node = {**SEEN["nodes"][0], "cards": cards, "tasks": 1, "used": {}, "labels": {}, "silent": None}
    used = {"queue": "lab", "user": "ada", "tasks": 3, "failed": 1, "asked": {"cpu": 2000.0}, "lost": {}, "cpu_hours": 1.5}
    monkeypatch.setitem(SEEN, "nodes", [node])
    monkeypatch.setitem(SEEN, "usage", [{**used, "peak_memory": None}])
    assert re.search(r"n +up +1 +cpu=0/9", "\n".join(screen(after("2"))))
    assert re.search(r"ada +3 +1 +2.00 +1.50", "\n".join(screen(after("3"))))
    assert re.search(r"n +0 +used +7.1\s.*\n.*n +1 +free", "\n".join(screen(after("4"))))
    assert after("4", "1") == View()
    for key in "234":
        lines = screen(after(key), 12)
        assert len(lines) <= 12
        assert "Esc back" in lines[-1]


def test_usage_at_80_columns_has_whole_names_and_says_what_is_left_out():
    names = ["lab/vision-and-robotics", "lab/speech"]
    used = {"tasks": 30000, "failed": 10000, "lost": {"cpu": 9e8}, "cpu_hours": 123456.5, "peak_memory": 2**40, "waiting": 12345}
    rows = {(name,): {**used, "asked": dict.fromkeys(("cpu", "memory", "gpu"), 2e6), "entitled": 1, "got": 1} for name in names}
    shown = printed(usage_table(rows, ["queue"], ["cpu", "memory", "gpu"], 80, 2.0), width=80)
    assert all(name in shown for name in names)
    assert "…" not in shown
    assert "50.0%" in shown
    assert "left out: peak, waiting, failed" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "left out" not in printed(usage_table(rows, ["queue"], ["cpu", "memory", "gpu"], 200, 2.0), width=200)


def test_printed_once_it_says_nothing_of_keys(shared):
    text = shared.ok("top", "--once")
    assert "node, " in text
    assert not re.search("quits|Esc|↑", text)


def test_keys_are_told_apart():
    assert keys_in("j\x1b[A\x1bOB\x1b[5~ä\x1b") == ["j", "\x1b[A", "\x1bOB", "\x1b[5~", "ä", "\x1b"]
    assert pressed(View(), "q", SEEN) is None


def read_until(terminal, *texts):
    """Wait until all of these were written to a terminal."""
    seen = b""
    while not all(text in seen for text in texts):
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 65536)


def test_on_a_terminal_keys_change_what_is_shown(shared):
    shared.ok("run", "-q", "A", "--", "echo", "seen")
    outer, inner = pty.openpty()
    command = [FAIRLEAD, "top", "--interval", "60"]
    program = subprocess.Popen(command, env=shared.env, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    read_until(outer, b"q quits", b"hidden")
    os.write(outer, b"i")
    read_until(outer, b"lab")
    os.write(outer, b"\r")
    read_until(outer, b"echo seen", b"wrote to stdout")
    os.write(outer, b"c")
    read_until(outer, b"y cancels it")
    os.write(outer, b"n2")
    read_until(outer, b"zone=east")
    os.write(outer, b"q")
    assert program.wait(60) == 0
    os.close(outer)
