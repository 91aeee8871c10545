"""The API's documentation: OpenAPI for programs, and a self-contained page for people."""

import html
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse

from fairlead.html_page import framed
from fairlead.service.api.access import ROUTES
from fairlead.service.api.answers import Json

_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def add_documents(api: APIRouter, app: FastAPI) -> None:
    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Json(app.openapi())

    @api.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_page(app.openapi()), headers=_HEADERS)


def _page(document: dict[str, Any]) -> str:
    parts = [f"<p>{_text(document['info']['description'])}</p><p>For programs: <a href='/openapi.json'>openapi.json</a></p>"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {_text(path)}</code></h2>")
            parts.append(f"<p>{_text(operation.get('description', ''))}</p>")
            parts.append(f"<p>For {_text(ROUTES[method.upper(), path].who.value)}.</p>")
            rows = [
                (each["name"], each["in"], each.get("description", ""), each["schema"])
                for each in operation.get("parameters", [])
            ]
            parts.append(_table([(name, place, told, _kind(schema)) for name, place, told, schema in rows]))
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body is not None:
                parts.append(_table(_fields(document, body)))
    return framed("The API of fairlead", parts)


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the fields of a body: name, place, description, type."""
    found = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    needed = found.get("required", [])
    return [
        (name, "body" if name in needed else "body, optional", each.get("description", ""), _kind(each))
        for name, each in found.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(each) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    if not rows:
        return ""
    cells = (
        f"<tr><td><code>{_text(name)}</code></td><td>{_text(place)}</td><td>{_text(kind)}</td><td>{_text(told)}</td></tr>"
        for name, place, told, kind in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _text(value: str) -> str:
    return html.escape(value)
