"""Requests to the page of `rankscope open`: bodies by its own description, then damaged.

A session lives as long as its worker; requests reach the application without a socket.
"""

import asyncio
import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.damage import ODD_TEXTS, damaged_document

# What makes a text more than noise: names of the embedded model, equations, formats, files.
_WORDS = (
    "transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_fc.weight", "transformer.wte.weight",
    "ij,jk->ik", "abc,cd->abd", "svd", "cp", "tensor-train", "tucker", "svg", "json", "tikz",
    "smaller", "multi-head", "attention", "linear", "A", "i", "j", "quick", "exact",
)  # fmt: skip
_ALLOWED = (200, 400, 404, 405, 409, 413, 415)


def draw_request(draw: random.Random) -> tuple[list[str], dict[str, bytes]]:
    """A path and its body."""
    path, schema = draw.choice(_described())
    if schema is None:
        return ["request", path], {}
    body = _example(schema, draw)
    data = damaged_document(body, draw) if draw.random() < 0.7 else json.dumps(body).encode()
    return ["request", path], {"body.json": data}


@cache
def _described() -> tuple[tuple[str, dict[str, Any] | None], ...]:
    from rankscope.page.endpoints import json_schema
    from rankscope.page.server import ENDPOINTS

    return tuple(
        (f"/api{endpoint.path}", None if endpoint.body is None else json_schema(endpoint.body))
        for endpoint in ENDPOINTS
    )


def _example(schema: dict[str, Any], draw: random.Random) -> Any:
    """Something that a JSON schema accepts, or nearly."""
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _example(draw.choice(schema[choice]), draw)
    if "enum" in schema:
        return draw.choice(schema["enum"])
    kind = schema.get("type", "string")
    return _KINDS[draw.choice(kind) if isinstance(kind, list) else kind](schema, draw)


def _object(schema: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    wanted = schema.get("required", ())
    return {
        name: _example(part, draw)
        for name, part in schema.get("properties", {}).items()
        if name in wanted or draw.random() < 0.5
    }


def _array(schema: dict[str, Any], draw: random.Random) -> list[Any]:
    return [_example(schema.get("items", {}), draw) for _ in range(draw.choice((0, 1, 2, 3)))]


def _integer(schema: dict[str, Any], draw: random.Random) -> int:
    least, most = schema.get("minimum", 0), schema.get("maximum", 12)
    return int(draw.choice((least, most, 1, 2, 3, 8)))


_KINDS: dict[str, Callable[[dict[str, Any], random.Random], Any]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": lambda schema, draw: draw.choice((_integer(schema, draw), 0.25, 0.5)),
    "boolean": lambda _, draw: draw.random() < 0.5,
    "null": lambda *_: None,
    "string": lambda _, draw: draw.choice((*_WORDS, draw.choice(ODD_TEXTS))),
}


class Page:
    """The application with one session, asked without a network."""

    _LIFE = 300  # requests, before the session is closed and a new one begins

    def __init__(self) -> None:
        self._left = 0
        self._loop = asyncio.new_event_loop()  # one: each has threads of its own

    def complaint(self, words: tuple[str, ...], body: bytes | None) -> str:
        """What is wrong with the answer to a request; "" if nothing."""
        if not self._left:
            self._open()
        self._left -= 1
        status, content = self._loop.run_until_complete(self._ask(words[1], body))
        if status not in _ALLOWED:
            return f"status {status}: {content[:400]!r}"
        if status == 200:
            return ""
        error = json.loads(content)["error"]
        if not isinstance(error, str) or not error or len(error) > 4000 or "\n" in error:
            return f"no single line: {error!r}"[:600]
        return ""

    def close(self) -> None:
        """End the workers of the session."""
        if self._left:
            self._session.close()
            self._left = 0

    def _open(self) -> None:
        from rankscope.page.server import make_app
        from rankscope.page.session import Session

        self.close()
        folder = Path(tempfile.mkdtemp(prefix="rankscope-fuzz-page-"))
        self._session = Session(None, folder / "output")
        self._app = make_app(self._session, 80)
        self._left = self._LIFE

    async def _ask(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        headers = {
            "host": "127.0.0.1",
            "x-rankscope-token": self._session.token,
            "content-type": "application/json",
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET" if body is None else "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        status, parts = 0, []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(parts)
