"""The API's documentation: OpenAPI for programs, and a self-contained page for people."""

from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse

from fairlead.html_page import framed, render
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
    routes = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            given = operation.get("parameters", [])
            rows = [(each["name"], each["in"], each.get("description", ""), _kind(each["schema"])) for each in given]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            tables = [rows, _fields(document, body) if body is not None else []]
            who, told = ROUTES[method.upper(), path].who.value, operation.get("description", "")
            routes.append({"method": method.upper(), "path": path, "told": told, "who": who, "tables": tables})
    return framed("The API of fairlead", [render("api.html", about=document["info"]["description"], routes=routes)])


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
