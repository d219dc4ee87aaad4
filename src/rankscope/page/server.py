"""The server of `rankscope open`: one page, its files, and the endpoints of its views."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from rankscope.errors import RankscopeError, RequestError
from rankscope.extras import package
from rankscope.page import diagram_view, figure_view, job_view, model_view, split_view
from rankscope.page.endpoints import Download, Endpoint, openapi
from rankscope.page.security import Guard, LongBodyError
from rankscope.page.session import Session
from rankscope.page.shell import STATIC, encoded, page_html, stylesheet
from rankscope.strict_json import parse_document, read_as

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
# Each view's endpoints; a new view adds its module here, and a file to static/.
VIEWS = (job_view, model_view, figure_view, diagram_view, split_view)
ENDPOINTS: tuple[Endpoint, ...] = tuple(endpoint for view in VIEWS for endpoint in view.ENDPOINTS)

HEARTBEAT = 10.0  # seconds between two signs of life of a stream without events
POLL = 0.04  # seconds between two looks for new events


def make_app(session: Session, port: int) -> Any:
    """The application, guarded.

    Args:
        session: that it is about.
        port: on which it will be served; the Host header must name it.

    Raises:
        MissingExtraError: if the extra `open` is not installed.
    """
    package("starlette", what="The page", extra="open")
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    routes = [
        Route("/", _page(session)),
        Route("/static/page.css", _style),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/api/openapi.json", _described),
        Route("/api/events", _events(session)),
        *(
            Route(f"/api{endpoint.path}", _answering(session, endpoint), methods=[endpoint.method])
            for endpoint in ENDPOINTS
        ),
    ]
    from starlette.exceptions import HTTPException

    app = Starlette(
        routes=routes, exception_handlers={HTTPException: _plain_error, Exception: _own_fault}
    )
    names = [HOST, "localhost"] if port == 80 else [f"{HOST}:{port}", f"localhost:{port}"]
    return Guard(app, token=session.token, hosts=tuple(names))


def _page(session: Session) -> "Callable[..., Any]":
    async def page(request: "Request") -> "Response":
        from starlette.responses import HTMLResponse

        return HTMLResponse(page_html(session))

    return page


async def _style(request: "Request") -> "Response":
    from starlette.responses import Response

    return Response(stylesheet(), media_type="text/css")


async def _described(request: "Request") -> "Response":
    return _json(openapi(ENDPOINTS))


def _events(session: Session) -> "Callable[..., Any]":
    """A stream of lines, one JSON document each, from the event `after` on."""

    async def lines(number: int) -> AsyncIterator[bytes]:
        quiet = 0.0
        while True:
            events, number = session.events.after(number)
            if events:
                yield b"".join(encoded(event) + b"\n" for event in events)
            elif quiet >= HEARTBEAT:
                yield b"\n"
            quiet = 0.0 if events or quiet >= HEARTBEAT else quiet + POLL
            await asyncio.sleep(POLL)

    async def stream(request: "Request") -> "Response":
        from starlette.responses import StreamingResponse

        text = request.query_params.get("after", "0")
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
        return StreamingResponse(lines(number), media_type="application/x-ndjson")

    return stream


def _answering(session: Session, endpoint: Endpoint) -> "Callable[..., Any]":
    async def answer(request: "Request") -> "Response":
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        try:
            body = await _body(request, endpoint)
        except tuple(_STATUS) as error:
            status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
            return _json({"error": str(error)}, status)
        try:
            answered = await run_in_threadpool(endpoint.handler, session, body)
        except RankscopeError as error:
            return _json({"error": str(error)}, 409)
        if isinstance(answered, Download):
            disposition = f'attachment; filename="{answered.name}"'
            return Response(
                answered.content,
                media_type=answered.media_type,
                headers={"content-disposition": disposition},
            )
        return _json(answered)

    return answer


class _NoJsonError(Exception):
    """The body says that it is something else than JSON."""


_STATUS: dict[type[Exception], int] = {
    _NoJsonError: 415,
    LongBodyError: 413,
    RankscopeError: 400,
}


async def _body(request: "Request", endpoint: Endpoint) -> Mapping[str, Any]:
    if endpoint.body is None:
        return {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise _NoJsonError("The body must be application/json.")
    document = parse_document(await request.body(), who="The request", error=RequestError)
    return read_as(endpoint.body, document, who="The request", error=RequestError)


def _json(document: Mapping[str, object] | bytes, status: int = 200) -> "Response":
    from starlette.responses import Response

    content = document if isinstance(document, bytes) else encoded(document)
    return Response(content, status, media_type="application/json")


async def _plain_error(request: "Request", error: Any) -> "Response":
    messages = {404: "There is nothing at this address.", 405: "Another method is wanted."}
    response = _json({"error": messages.get(error.status_code, str(error.detail))})
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _own_fault(request: "Request", error: Exception) -> "Response":
    return _json({"error": f"{type(error).__name__}: {error}"}, 500)


def bound_socket(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0 takes one that is free.

    Raises:
        RequestError: if another program has the port.
    """
    # Named TCP, or asyncio does not switch off what delays the second part of an answer by 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        reason = error.strerror or "refused"
        raise RequestError(
            f"Port {port} of this machine cannot be used ({reason}): another program may have it. "
            "Give another one with --port, or 0 for any that is free."
        ) from error
    return listening


def serve(session: Session, listening: socket.socket) -> None:
    """Serve until interrupted, then end the workers.

    Raises:
        MissingExtraError: if the extra `open` is not installed.
    """
    uvicorn = package("uvicorn", what="The page", extra="open")
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        make_app(session, port),
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=200,
        server_header=False,
    )
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        session.close()
        listening.close()


def address(session: Session, listening: socket.socket) -> str:
    """Where the page is, with the token."""
    return f"http://{HOST}:{listening.getsockname()[1]}/?token={session.token}"
