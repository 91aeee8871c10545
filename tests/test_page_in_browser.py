"""The page in a real browser, for `make test-page`: sizes, colours, keyboard, without scripts, accessibility, and its pictures.

The browser is `CHROMIUM`, or one on the PATH, or playwright's own.
"""

import io
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from conftest import Live
from fairlead.service.page.entrance import HEADERS

if not os.environ.get("FAIRLEAD_PAGE"):
    pytest.skip("only `make test-page` starts a browser", allow_module_level=True)

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent.parent / "docs"
SIZES = {"desk": (1280, 800), "tablet": (820, 1100), "phone": (390, 844)}
VIEWS = (
    "/page/now", "/page/now?resource=gpu", "/page/queues", "/page/queues/lab", "/page/queues/lab/vision", "/page/jobs",
    "/page/jobs/1", "/page/jobs/2", "/page/jobs/4", "/page/jobs/6", "/page/nodes", "/page/nodes/g1", "/page/people",
    "/page/history",
)  # fmt: skip
PICTURES = {
    "now": ("/page/now", "desk", "light"), "job": ("/page/jobs/2", "desk", "light"), "nodes": ("/page/nodes", "desk", "light"),
    "queue": ("/page/queues/lab/vision", "desk", "light"), "queues": ("/page/queues", "desk", "dark"),
    "people": ("/page/people", "desk", "light"), "history": ("/page/history", "desk", "dark"),
    "phone": ("/page/now", "phone", "dark"),
}  # fmt: skip
CONFIG = """
[[queue]]
name = "lab"
weight = 2
[[queue]]
name = "lab/vision"
guarantee = { gpu = 2 }
[[queue]]
name = "lab/speech"
limit = { cpu = 40 }
[[queue]]
name = "teaching"
guarantee = { cpu = 16 }
[[queue]]
name = "teaching/*"
[[node]]
name = "n"
count = 6
capacity = { cpu = 16, memory = "64Gi" }
[[node]]
name = "g1"
capacity = { cpu = 32, memory = "256Gi", gpu = 4 }
"""
EPOCHS = 'i=0; while :; do i=$((i+1)); echo "epoch $i  loss 0.$((5000/(i+3)))"; sleep 1; done'
JOBS = (
    "lab/vision --name train-resnet -n 6 --cpu 4 --memory 16Gi --gpu 1 -- sh -c",
    "lab/speech --name align -n 30 --cpu 2 --memory 4Gi -- sleep 900",
    "lab/speech --name transcribe -n 60 --cpu 2 --memory 4Gi -- sleep 900",
    "teaching/ada --name notebook -n 3 --cpu 4 --memory 8Gi -- sleep 3600",
    "teaching/ben --name exercise-4 -n 20 --cpu 4 --memory 8Gi -- sleep 900",
)


GRADING = ("--", "sh", "-c", "[ $((FAIRLEAD_INDEX % 7)) != 3 ]")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("page")) as live:
        live.config.write_text(CONFIG)
        live.up()
        live.ok("submit", "-q", "teaching/eve", "--name", "grading", "-n", "40", *GRADING)
        live.call("wait", "1")
        for job in JOBS:
            live.ok("submit", "-q", *job.split(), *([EPOCHS] if job.endswith("-c") else []))
        time.sleep(20)  # for curves over time
        yield live


@pytest.fixture(scope="module")
def chromium():
    named = ("chromium", "chromium-browser", "google-chrome", "chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, named)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def visit(world, chromium, tmp_path):
    """Opens a context that is signed in from a file, as a browser is by `fairlead page`; notes what must not happen."""
    opened, wrong = [], []

    def sign_in(size="desk", colours="light", scripts=True):
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=colours, java_script_enabled=scripts
        )
        opened.append(context)
        found = world.http("POST", "/v1/page", {})[1]
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith((found["url"], "file:", "data:")) else wrong.append(request.url),
        )
        file = tmp_path / "sign-in.html"
        file.write_text(
            f'<form method="post" action="{found["url"]}/page/enter"><input type="hidden" name="code" value="{found["code"]}">'
            "<button>Open</button></form>" + "<script>document.forms[0].submit()</script>" * scripts
        )
        page.goto(file.as_uri())
        if not scripts:
            page.get_by_role("button").click()
        page.wait_for_url("**/page/now")
        page.base = found["url"]
        return page

    yield sign_in
    for context in opened:
        context.close()
    assert not wrong


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_each_page_at_each_size_is_whole_and_for_everybody(visit, size, colours):
    """Nothing is wider than the screen, axe finds no violation, the policy of content refuses nothing, no other host is asked."""
    page, axe = visit(size, colours), Axe()
    for view in VIEWS:
        assert page.goto(page.base + view).status == 200
        page.wait_for_selector("#live", state="visible")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], view
        found = axe.run(page)
        assert not found.violations_count, (view, found.generate_report())


def test_it_works_without_scripts(visit):
    page = visit(scripts=False)
    for view in VIEWS:
        assert page.goto(page.base + view).status == 200
        assert page.locator("h1").inner_text()
    page.goto(f"{page.base}/page/jobs/2")
    page.locator("summary", has_text="Cancel").click()
    assert page.get_by_role("button", name="Cancel job 2").is_visible()


def test_it_works_by_keyboard(visit, world):
    """The skip link, the pages, and holding a job, without a pointer."""
    page = visit()

    def tab_to(name):
        for _ in range(80):
            page.keyboard.press("Tab")
            if name in (page.evaluate("document.activeElement.innerText") or ""):
                return
        raise AssertionError(f"Tab does not reach {name}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("Jobs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/page/jobs")
    page.goto(f"{page.base}/page/jobs/4")
    tab_to("Hold")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Release")
    assert world.job(4)["status"] == "held" or world.job(4)["running"]
    tab_to("Release")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Hold")


def test_a_page_follows_what_happens_while_somebody_looks(visit, world):
    page = visit()
    page.goto(f"{page.base}/page/jobs?user=nobody")
    page.goto(f"{page.base}/page/jobs")
    page.wait_for_selector("#live", state="visible")
    page.locator("#list a", has_text="transcribe").or_(page.locator("#list a").first).first.focus()
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    number = world.submit("-q", "teaching/ada", "--name", "fresh", "--cpu", "16", "--", "true")
    page.wait_for_selector(f"#list a[href='/page/jobs/{number}']", timeout=20_000)
    assert page.evaluate("document.activeElement.getAttribute('href')") == focused
    hidden = page.evaluate(
        "() => { Object.defineProperty(document, 'visibilityState', {value: 'hidden'});"
        "document.dispatchEvent(new Event('visibilitychange')); return performance.getEntriesByName('x').length }"
    )
    assert hidden == 0
    world.ok("cancel", str(number))
    time.sleep(7)
    assert page.locator(f"#list tr:has(a[href='/page/jobs/{number}']) .status.cancelled").count() == 0


def test_pictures_of_the_pages(visit):
    """What docs/page.md shows."""
    for name, (view, size, colours) in PICTURES.items():
        page = visit(size, colours)
        page.goto(page.base + view)
        page.wait_for_timeout(1500)
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        shot = shot.convert("RGB").crop((0, 0, shot.width, min(shot.height, 1500 if size == "desk" else 1200)))
        shot.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            DOCS / f"page-{name}.png", optimize=True
        )
        assert (DOCS / f"page-{name}.png").stat().st_size < 100_000


def test_the_policy_is_the_strict_one():
    assert re.match("default-src 'none'; script-src 'self'; style-src 'self'; ", HEADERS["Content-Security-Policy"])
