"""The API against its own document: whatever is asked, it answers as it says, and never with a fault of its own."""

import zlib
from collections import Counter
from types import SimpleNamespace

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

from conftest import Live
from fairlead.service.api.app import Parts, make_api
from random_cases import FUZZ, cases

document = make_api(SimpleNamespace(loop=None, authenticator=None, wakeups=None), Parts(*[None] * 12)).openapi()
schema = schemathesis.openapi.from_dict(document)
# It is to stay up, and nothing of what is asked for is to run.
schema = schema.exclude(path=["/v1/down", "/v1/nodes/{node}/resume"])
LOOKS_BACK = ["/v1/audit/over-time", "/v1/usage"]
FEW = 1
"""Requests that are as they should be, to each of those: a process that looks back takes as long to start as a hundred others."""

AGAIN = ["/v1/bulk", "/v1/when"]
"""What has the fields of POST /v1/jobs again: of hundreds of wrong values an eighth is tried, and all in `make fuzz`."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("schema")) as live:
        live.up("--port", "0")
        live.ok("drain", "n1")
        live.url = live.ask("status")["urls"][1]
        live.token, live.right = live.ok("token", "new").strip(), Counter()
        with requests.Session() as live.session:
            live.session.trust_env = False
            yield live


@schema.exclude(path=LOOKS_BACK).parametrize()
@settings(max_examples=cases(1), deadline=None, suppress_health_check=list(HealthCheck))
def test_it_answers_as_it_says(case, world):
    check(case, world)


@schema.include(path=LOOKS_BACK).parametrize()
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_looks_back_in_a_process_of_its_own_answers_as_it_says(case, world):
    if case.meta.generation.mode.is_positive:
        world.right[case.path] += 1
        if world.right[case.path] > FEW:
            return
    check(case, world)


def check(case, world):
    is_right = case.meta.generation.mode.is_positive
    if case.path in AGAIN and not is_right and not FUZZ and zlib.crc32(repr((case.query, case.body)).encode()) % 8:
        return
    is_changed = bool({"follow", "wait"} & {*(case.query or {})})  # what was wrong with them is right then
    if case.path == "/v1/facts":
        case.query = {**(case.query or {}), "follow": False}
    if case.query and "wait" in case.query:
        case.query = {**case.query, "wait": 0}
    # No schema can say which queues there are; and Starlette names one method of a path with several in `Allow`.
    excluded = [CHECKS.get_one(name) for name in ("positive_data_acceptance", "unsupported_method", "allow_header_conformance")]
    is_large = len(str(case.body)) > 2**20 or len(str(case.query)) > 2**12  # 413, and 431, are as good as 422
    accepted = [CHECKS.get_one("negative_data_rejection")] if is_large or is_changed else []
    headers = {"Authorization": f"Bearer {world.token}"}
    case.call_and_validate(
        base_url=world.url, session=world.session, headers=headers, excluded_checks=excluded + accepted, timeout=60
    )
