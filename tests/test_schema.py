"""The API against its own document: whatever is asked, it answers as it says, and never with a fault of its own."""

import json
from types import SimpleNamespace

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

from conftest import Live
from fairlead.service.api.app import make_api

document = make_api(SimpleNamespace(loop=None), None, None, None, "", None, None, None).openapi()
schema = schemathesis.openapi.from_dict(document)
# It is to stay up, and nothing of what is asked for is to run.
schema = schema.exclude(path=["/v1/down", "/v1/nodes/{node}/resume"])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("schema")) as live:
        live.up()
        live.ok("drain", "n1")
        yield live


@schema.parametrize()
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_it_answers_as_it_says(case, world):
    if case.path == "/v1/facts":
        case.query = {**(case.query or {}), "follow": False}
    if case.query and "wait" in case.query:
        case.query = {**case.query, "wait": 0}
    url = json.loads((world.home / "server.json").read_text())["url"]
    token = (world.home / "token").read_text().strip()
    # No schema can say which queues there are; and Starlette names one method of a path with several in `Allow`.
    excluded = [
        CHECKS.get_one(name) for name in ("positive_data_acceptance", "unsupported_method", "allow_header_conformance")
    ]
    large = [CHECKS.get_one("negative_data_rejection")] if len(str(case.body)) > 2**20 else []  # 413 is as good as 422
    headers = {"Authorization": f"Bearer {token}"}
    case.call_and_validate(base_url=url, headers=headers, excluded_checks=excluded + large)
