"""Large bodies: parsed in one separate thread, one at a time per person.

Python switches threads only between bytecodes, and parsers and validators run as one. So lists in a body are validated item by
item.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args, get_origin

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from fairlead.model.faults import no_json, parse_json, reason, shortened
from fairlead.people.rules import Caller
from fairlead.service.api.answers import retry_after
from fairlead.service.api.state_client import OnePerPerson
from fairlead.service.loop import Busy

LARGE = 256 * 2**10
"""Bytes of a body above which it is parsed in the thread."""

_reading = ThreadPoolExecutor(1, "bodies")


class LargeBody(Request):
    """A request whose large body is parsed and validated in a separate thread.

    model : the type of the body
    one_each : limits each person to one
    """

    def __init__(self, request: Request, model: type[BaseModel], one_each: OnePerPerson) -> None:
        super().__init__(request.scope, request.receive)
        self._model, self._one_each = model, one_each

    async def json(self) -> Any:
        """Return the body: parsed JSON, or an instance of the model, which is not validated again."""
        body = await self.body()
        caller: Caller = self.scope["caller"]
        try:
            if len(body) <= LARGE:
                return parse_json(body)
            with self._one_each.of(caller):
                return await asyncio.get_running_loop().run_in_executor(_reading, read, self._model, body)
        except Busy as busy:
            raise HTTPException(429, str(busy), retry_after(1)) from None
        except (ValidationError, RequestValidationError) as error:
            raise HTTPException(422, in_one_line(error.errors())) from None
        except json.JSONDecodeError as error:
            raise HTTPException(422, f"line {error.lineno}: {no_json(error)}") from None
        except RecursionError:
            raise HTTPException(422, "nested too deeply") from None
        except ValueError as error:  # a duplicate key, a number with too many digits, or invalid text
            raise HTTPException(422, shortened(str(error))) from None


def read(model: type[BaseModel], body: bytes) -> Any:
    """Parse a body as a model; its lists are validated item by item.

    Raises ValidationError, RequestValidationError, JSONDecodeError, and ValueError for a duplicate key.
    """
    asked = parse_json(body)
    if isinstance(asked, dict):
        for name, kind in _lists(model).items():
            if isinstance(asked.get(name), list):
                asked[name] = [_piece(kind, name, place, each) for place, each in enumerate(asked[name])]
    return model.model_validate(asked)


def _lists(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the fields of a model that are lists of models."""
    types = {name: field.annotation for name, field in model.model_fields.items()}
    kinds = {name: get_args(kind) for name, kind in types.items() if get_origin(kind) is list}
    return {name: kind for name, (kind,) in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def _piece(kind: type[BaseModel], name: str, place: int, value: object) -> BaseModel:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        errors = [{**each, "loc": (name, place, *each["loc"])} for each in error.errors()]
        raise RequestValidationError(errors) from None


def in_one_line(errors: Any) -> str:
    """Return the first error, and where."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "header"))
    said = reason(first["type"], str(first["msg"]))
    return f"{place}: {said}" if place and not said.startswith(f"{place}:") else said
