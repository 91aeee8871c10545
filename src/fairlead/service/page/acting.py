"""What forms of the page do: the request of the API that each is, and where the browser goes then."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from fairlead.model.quantity import parse_seconds
from fairlead.service.page.asking import Declined, number_in

Form = Mapping[str, str]
NUMBERS = ("priority", "retries", "at_most")


class Action(NamedTuple):
    """A form: the path that it posts to, the API's path, its body, and the next page."""

    pattern: re.Pattern[str]
    path: str
    body: Callable[[Form], Any]
    then: Callable[[dict[str, str], Any], str]


def _edited(form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found |= {name: int(form[name]) for name in NUMBERS if form.get(name, "").strip()}
        if text := form.get("time_limit", "").strip():
            found["time_limit"] = parse_seconds(text)
    except ValueError as error:
        raise Declined(422, f"edit: {error}") from None
    if queue := form.get("queue", "").strip():
        found["queue"] = queue
    return found


def _cards(form: Form) -> dict[str, Any]:
    """Return the card that the form is about; without one it is about the whole node."""
    if not (text := form.get("gpu", "").strip()):
        return {}
    if (card := number_in(text)) is None:
        raise Declined(422, f"gpu: {text[:20]!r} is not the number of a card")
    return {"gpus": [card]}


def _job(args: dict[str, str], answer: Any) -> str:
    return f"/page/jobs/{answer.get('id', args['job'])}"


def _node(args: dict[str, str], answer: Any) -> str:
    return "/page/nodes" if args["what"] == "forget" else f"/page/nodes/{quote(args['node'])}"


ACTIONS = (
    Action(
        re.compile(r"/page/jobs/(?P<job>\d{1,16})/(?P<what>cancel|hold|release)"), "/v1/jobs/{job}/{what}",
        lambda form: {}, _job,
    ),
    Action(
        re.compile(r"/page/jobs/(?P<job>\d{1,16})/rerun"), "/v1/jobs/{job}/rerun",
        lambda form: {"failed": "failed" in form}, _job,
    ),
    Action(re.compile(r"/page/jobs/(?P<job>\d{1,16})/edit"), "/v1/jobs/{job}/edit", _edited, _job),
    Action(
        re.compile(r"/page/nodes/(?P<node>.+)/(?P<what>drain|resume|forget)"), "/v1/nodes/{node}/{what}", _cards, _node
    ),
)  # fmt: skip


def find_action(path: str) -> tuple[Action, dict[str, str]]:
    """Return the action of a path, and what the path names. Raises Declined."""
    for action in ACTIONS:
        if found := action.pattern.fullmatch(path):
            return action, found.groupdict()
    raise Declined(404, "there is no such form")
