"""What the page may ask of the server: one table gives routes, checks of requests, and OpenAPI.

A view is a module with a tuple `ENDPOINTS`; `server.VIEWS` lists the views. A handler takes the
session and the body of the request, read by the endpoint's `Reader`, and returns plain data (as
JSON already, if it is kept so), or a `Download`. It runs in a thread; what takes longer than a
moment goes to `session.jobs`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rankscope.strict_json import (
    Anything,
    Choice,
    Either,
    Exactly,
    Flag,
    Integer,
    ListOf,
    Number,
    Object,
    Optional,
    Pair,
    Reader,
    Record,
    Tagged,
    Text,
    Values,
)

if TYPE_CHECKING:
    from rankscope.page.session import Session

Body = Mapping[str, Any]
NOTHING = Object({})


@dataclass(frozen=True)
class Download:
    """A file that the page gives to the reader."""

    name: str
    content: bytes
    media_type: str


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One question that the page may ask.

    Args:
        path: below `/api`, such as "/plan".
        summary: one sentence for the description of the interface.
        handler: answers; errors of this package become status 409 with their message.
        body: what the request must hold; None for a GET request, which holds nothing.
    """

    path: str
    summary: str
    handler: "Callable[[Session, Body], Mapping[str, object] | bytes | Download]"
    body: Object | None = None

    @property
    def method(self) -> str:
        """GET for questions without a body, POST for the others."""
        return "GET" if self.body is None else "POST"


# What a download may be.
FILES = ("application/pdf", "image/png", "image/svg+xml", "text/plain", "text/x-python")
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
    "additionalProperties": False,
}


def openapi(endpoints: tuple[Endpoint, ...]) -> dict[str, object]:
    """The interface as an OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "rankscope open", "version": version("rankscope")},
        "components": {
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Rankscope-Token"}
            }
        },
        "security": [{"token": []}],
        "paths": {
            f"/api{endpoint.path}": {endpoint.method.lower(): _operation(endpoint)}
            for endpoint in endpoints
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, object]:
    refused = {"application/json": {"schema": ERROR}}
    statuses = {
        "400": "The request is no JSON, or not what is described here.",
        "403": "The token, the host or the origin is wrong.",
        "405": "Another method is wanted.",
        "409": "It cannot be done as things are; the message says why.",
        "413": "The request is too large.",
        "415": "The body is no JSON.",
        "500": "The server is at fault.",
    }
    answer = {"application/json": {"schema": {"type": "object"}}} | {name: {} for name in FILES}
    operation: dict[str, object] = {
        "summary": endpoint.summary,
        "operationId": endpoint.method.lower() + endpoint.path.replace("/", "-"),
        "responses": {"200": {"description": "The answer.", "content": answer}}
        | {status: {"description": text, "content": refused} for status, text in statuses.items()},
    }
    if endpoint.body is not None:
        schema = json_schema(endpoint.body)
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def json_schema(reader: Reader[Any]) -> dict[str, object]:  # noqa: PLR0911 - one for each kind
    """What a reader accepts, as a JSON schema.

    Example:
        >>> json_schema(ListOf(Integer(low=1), at_most=3))
        {'type': 'array', 'items': {'type': 'integer', 'minimum': 1}, 'maxItems': 3}
    """
    match reader:
        case Object():
            return {
                "type": "object",
                "properties": {key: json_schema(part) for key, part in reader.parts.items()},
                "required": [key for key in reader.parts if key not in reader.optional],
                "additionalProperties": False,
            }
        case ListOf():
            limit = {} if reader.at_most is None else {"maxItems": reader.at_most}
            return {"type": "array", "items": json_schema(reader.item), **limit}
        case Values():
            inner = json_schema(reader.item)
            limit = {"maxProperties": reader.at_most}
            return {"type": "object", "additionalProperties": inner, **limit}
        case Record():
            return json_schema(reader.as_object)
        case Tagged():
            return {"anyOf": [_tagged(reader.key, *kind) for kind in reader.kinds.items()]}
        case Optional():
            return {"anyOf": [json_schema(reader.something), {"type": "null"}]}
        case Either():
            return {"anyOf": [json_schema(reader.first), json_schema(reader.second)]}
        case _:
            return _plain_schema(reader)


def _tagged(key: str, word: str, reader: Reader[Any]) -> dict[str, object]:
    schema: dict[str, Any] = json_schema(reader)
    return {
        **schema,
        "properties": {key: {"const": word}, **schema["properties"]},
        "required": [key, *schema["required"]],
    }


def _plain_schema(reader: Reader[Any]) -> dict[str, object]:  # noqa: C901, PLR0911 - as above
    match reader:
        case Integer():
            limits = {"minimum": reader.low, "maximum": reader.high}
            return {"type": "integer"} | {k: v for k, v in limits.items() if v is not None}
        case Number():
            return {"type": "number"}
        case Text():
            return {"type": "string"}
        case Flag():
            return {"type": "boolean"}
        case Choice():
            return {"enum": [str(option) for option in reader.options]}
        case Exactly():
            return {"const": reader.value}
        case Pair():
            parts = [json_schema(reader.first), json_schema(reader.second)]
            return {"type": "array", "prefixItems": parts, "minItems": 2, "maxItems": 2}
        case Anything():
            return {}
        case _:
            raise TypeError(f"no JSON schema is known for a reader of {reader}")
