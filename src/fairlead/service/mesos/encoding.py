"""Messages as bytes (protobuf, or JSON as Mesos writes it), and records of a stream.

Mesos' JSON differs from protobuf's own: 64-bit numbers are numbers, not strings. Received messages may have unknown fields and
may lack required ones. Sent messages have all required fields and no unknown ones.
"""

import base64
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fairlead.failure import failing

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
KINDS = (JSON, PROTOBUF)
"""The supported content types; the first is the default."""
_DEEPEST = 60
"""Maximum nesting of messages in received JSON."""
_BOOLEANS = {"true": True, "false": False}

M = TypeVar("M", bound=Message)


class Malformed(ValueError):
    """Bytes that are not a valid message; the message states why."""


def decode(kind: str, body: bytes, into: M) -> M:
    """Decode a body of a content type into an empty message. Raises Malformed."""
    name = into.DESCRIPTOR.name
    if kind == PROTOBUF:
        try:
            into.ParseFromString(body)
        except DecodeError:
            raise Malformed(f"Failed to parse body into {name} protobuf") from None
        return _whole(into)
    with failing("Failed to parse body into JSON: ", ValueError, RecursionError, to=Malformed):
        value = json.loads(body)
        if b"\\u" in body:  # lone surrogates would crash protobuf
            json.dumps(value, ensure_ascii=False).encode()
    if not isinstance(value, dict):
        raise Malformed(f"Failed to convert JSON into {name} protobuf: it is not an object")
    kinds = (json_format.ParseError, TypeError, AttributeError, ValueError, RecursionError)
    with failing(f"Failed to convert JSON into {name} protobuf: ", *kinds, to=Malformed):
        _prepare(value, into.DESCRIPTOR, _DEEPEST)
        json_format.ParseDict(value, into, ignore_unknown_fields=True, max_recursion_depth=_DEEPEST)
    return _whole(into)


def _whole(message: Any) -> Any:
    if not message.IsInitialized():
        raise Malformed(f"Missing required fields: {', '.join(message.FindInitializationErrors())}")
    return message


def _prepare(value: dict[str, Any], message: Any, deepest: int) -> None:
    """Convert booleans sent as text, in place; raise ParseError if the value of a message field is neither an object nor null.

    As Mesos' later reader does; protobuf's own refuses such booleans, and accepts a string for a message.
    """
    messages, booleans = _fields_of(message)
    for name in booleans & value.keys():
        said = value[name]
        value[name] = _BOOLEANS.get(said.strip(" \t\r\n"), said) if isinstance(said, str) else said
    for name in messages.keys() & value.keys():
        part, (repeated, of) = value[name], messages[name]
        if part is None:
            continue
        if repeated and not isinstance(part, list):
            raise json_format.ParseError(f"{name} is not a list")
        for each in part if repeated else [part]:
            if not isinstance(each, dict):
                raise json_format.ParseError(f"{name} is not an object")
            if deepest > 0:
                _prepare(each, of, deepest - 1)


@cache
def _fields_of(message: Any) -> tuple[dict[str, tuple[bool, Any]], set[str]]:
    """Return, by both of their names, the message fields (whether repeated, and their type) and the single booleans."""
    fields = [(name, field) for field in message.fields for name in (field.name, field.json_name)]
    messages = {
        name: (field.is_repeated, field.message_type)
        for name, field in fields
        if field.message_type is not None and not field.message_type.GetOptions().map_entry
    }
    return messages, {name for name, field in fields if field.type == field.TYPE_BOOL and not field.is_repeated}


def missing_body(call: Any) -> str:
    """Return the field that belongs to the type of a call, if there is one and it is not set; else an empty string."""
    name = call.Type.Name(call.type).lower()
    return name if name in call.DESCRIPTOR.fields_by_name and not call.HasField(name) else ""


def type_is_unknown(kind: str, body: bytes, message: Message) -> bool:
    """True if a decoded message has a `type` that is unknown here."""
    if message.HasField("type"):
        return False
    if kind == PROTOBUF:
        number = message.DESCRIPTOR.fields_by_name["type"].number
        unknown: Any = UnknownFieldSet(message)
        return any(field.field_number == number for field in unknown)
    return isinstance(json.loads(body).get("type"), str | int)


def encode(kind: str, message: Message) -> bytes:
    """Encode a message; JSON is one line of ASCII. Raises EncodeError if a required field is missing."""
    if kind == PROTOBUF:
        return message.SerializeToString()
    if not message.IsInitialized():
        message.SerializeToString()  # raises an error that names what is missing
    return json.dumps(as_json(message), separators=(",", ":")).encode("ascii")


def as_json(message: Message) -> dict[str, Any]:
    """Convert a message to JSON as Mesos does: only fields that are set, by their original names."""
    found = {}
    for field, value in message.ListFields():
        name, writes = _as_written(field)
        found[name] = writes(value)
    return found


@cache
def _as_written(field: Any) -> tuple[str, Callable[[Any], Any]]:
    """Return a field's name, and the function that converts its value to JSON."""
    one = _one_of(field)
    if not field.is_repeated:
        return field.name, one
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_values = _one_of(field.message_type.fields_by_name["value"])
        return field.name, lambda values: {str(key): of_values(values[key]) for key in values}
    return field.name, lambda values: [one(each) for each in values]


def _one_of(field: Any) -> Callable[[Any], Any]:
    """Return a converter for single values: 64-bit numbers as numbers, enumerations and NaN by name, bytes in base64."""
    if field.message_type is not None:
        return as_json
    if field.enum_type is not None:
        names = {number: named.name for number, named in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, value)
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return lambda value: value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if field.type == field.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    return lambda value: value


def record(kind: str, message: Message) -> bytes:
    """Encode a message as a record of a stream: its length, a line break, its bytes."""
    body = encode(kind, message)
    return b"%d\n" % len(body) + body


def accepted_kind(accept: str | None) -> str | None:
    """Return the content type that an ``Accept`` header allows; None if it allows no supported one."""
    if accept is None or not accept.strip():
        return JSON
    allowed = set()
    for part in accept.split(","):
        media, *parameters = [each.strip().lower() for each in part.split(";")]
        if not any(each.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for each in parameters):
            allowed.add(media)
    return next((kind for kind in KINDS if {kind, "*/*", "application/*"} & allowed), None)
