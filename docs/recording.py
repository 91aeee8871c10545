"""Makes docs/recording.svg: a real session of twenty seconds, as a picture that plays by itself. `make recording` runs it.

Two people share a scheduler of 9 CPUs and 18 GiB. Their commands run for real, in a temporary folder; the picture shows what they
print. Only the pace is the picture's own: each line appears when a reader is ready for it. It needs no script.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

PLACE = Path(__file__).with_name("recording.svg")
CONFIG = """
[[queue]]
name = "ada"

[[queue]]
name = "bob"

[[node]]
name = "server"
capacity = { cpu = 9, memory = "18Gi" }
"""
SECONDS = 20.0
COLUMNS, LINE, LETTER = 80, 19, 8.4
WORK = "#!/bin/sh\necho >> starts; sleep 1\n"
LOOK = 3.0  # s that a screen stays after its last line
STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre; }
.command { fill: #ffffff; font-weight: 600; }
.note { fill: #82aaff; }
"""


class Line(NamedTuple):
    """A line of the picture; `kind` is "command", "note" or "", `pause` the seconds before it appears."""

    text: str
    kind: str = ""
    pause: float = 0.05


class Session:
    """A scheduler in a folder, and a person's shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.joinpath("lab.toml").write_text(CONFIG)
        folder.joinpath("work").write_text(WORK)
        folder.joinpath("work").chmod(0o755)
        commands = str(Path(sys.executable).parent)
        path = f"{commands}:{os.environ['PATH']}"
        self.env = {**os.environ, "FAIRLEAD_HOME": str(folder / "home"), "COLUMNS": str(COLUMNS), "PATH": path, "NO_COLOR": "1"}

    def up(self) -> tuple[list[Line], subprocess.Popen[str]]:
        """Start the scheduler; return what it shows, and its process."""
        command = "fairlead up --config lab.toml"
        process = subprocess.Popen(
            command.split(), cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout
        for line in process.stdout:
            if found := re.search(r"as process (\d+)", line):
                return [
                    Line(f"$ {command} &", "command", 0.6),
                    Line(f"fairlead: ready, as process {found[1]}", pause=0.4),
                ], process
        raise SystemExit("the scheduler did not start")

    def run(self, command: str, pause: float = 0.9) -> list[Line]:
        """Run a command line; return it and what it prints."""
        shell = ["sh", "-c", command]
        done = subprocess.run(shell, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        printed = re.sub(r"^─+\n", "", done.stdout + done.stderr, flags=re.MULTILINE).splitlines()
        return [Line(f"$ {command}", "command", pause), *(Line(line, pause=0.35 * (n == 0)) for n, line in enumerate(printed))]


def record(folder: Path) -> list[list[Line]]:
    """Run the session; return its screens."""
    session = Session(folder)
    begun, process = session.up()
    share = [Line("# Ada's tasks need memory, Bob's need CPUs. One server: 9 CPUs, 18 GiB.", "note", 0.0), *begun]
    share += session.run("fairlead submit --queue ada --cpu 1 --memory 4Gi --tasks 30 -- ./work")
    share += session.run("fairlead submit --queue bob --cpu 3 --memory 1Gi --tasks 20 -- ./work")
    time.sleep(1.5)
    share += session.run("fairlead queues")
    share += [Line("# 3 and 2: each has two thirds of what they need most. That is fair.", "note", 0.8)]
    why = [Line("# Why does it wait, and until when?", "note", 0.0)]
    why += session.run("fairlead submit --queue bob --cpu 6 --memory 1Gi -- true")
    time.sleep(0.5)
    why += session.run("fairlead why 3")
    process.kill()
    process.wait()
    died = [Line("# Kill the scheduler in the middle. The tasks run on.", "note", 0.0)]
    died += [Line(f"$ kill -9 {process.pid}", "command", 0.8)]
    time.sleep(1.0)
    begun, process = session.up()
    died += begun
    died += session.run("fairlead wait 1 2 3", pause=0.8)
    died += session.run("fairlead jobs")
    died += session.run("wc -l < starts")
    died += [Line("# 50 tasks, 50 starts: nothing was lost, nothing ran twice.", "note", 0.6)]
    session.run("fairlead down --now")
    process.wait()
    return [share, why, died]


def picture(screens: list[list[Line]], seconds: float = SECONDS) -> str:
    """Return an SVG that shows one screen after the other, line by line, and begins again after `seconds`."""
    total = sum(line.pause for screen in screens for line in screen) + LOOK * len(screens)
    pace, now, shapes, rules = seconds / total, 0.0, [], []
    height = LINE * (max(map(len, screens)) + 1) + 20
    for screen in screens:
        times = []
        for line in screen:
            now += line.pause * pace
            times.append(100 * now / seconds)
        now += LOOK * pace
        end = 100 * now / seconds
        for n, (line, at) in enumerate(zip(screen, times, strict=True)):
            name = f"l{len(rules)}"
            after = "" if end > 99.99 else f" {end:.2f}% {{ opacity: 0 }}"  # the last screen stays to the end
            rules.append(
                f"@keyframes {name} {{ 0% {{ opacity: {int(at < 0.01)} }} {at:.2f}% {{ opacity: 1 }}{after} }}"
                f" #{name} {{ animation: {name} {seconds:g}s step-end infinite }}"
            )
            shapes.append(f'<text id="{name}" class="{line.kind}" x="18" y="{36 + LINE * n}">{escape(line.text)}</text>')
    width = round(LETTER * COLUMNS + 36)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>A session of twenty seconds: two people share a server, and the scheduler is killed in the middle</title>",
            f"<style>{STYLE}{' '.join(rules)}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#10151f"/>',
            *shapes,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PLACE.write_text(picture(record(Path(folder))), "utf-8")
    sys.stdout.write(f"{PLACE}: {PLACE.stat().st_size // 1000} kB\n")
