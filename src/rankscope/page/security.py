"""Who may ask: only the page that this server gave out, in a browser on this machine.

Any web page that a browser shows can send requests to 127.0.0.1. So the name of the host must be
ours (a stranger's name may be pointed at this machine), the origin too, and every question needs a
token that only the opened page knows. The page itself may run scripts from this server only.
"""

import json
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2_000_000  # bytes of a request
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
TOKEN_HEADER = b"x-rankscope-token"


class Guard:
    """Refuses requests that are not from the opened page, and adds the headers of `HEADERS`.

    Args:
        app: that answers the others.
        token: of the session.
        hosts: allowed values of the Host header.
    """

    def __init__(self, app: "ASGIApp", *, token: str, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = [host.encode() for host in hosts]
        self._origins = [b"http://" + host for host in self._hosts]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return

        async def send_guarded(message: "Message") -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send_guarded, *refusal)
            return
        await self._app(scope, _Limited(receive).receive, send_guarded)

    def _refusal(  # noqa: PLR0911 - one for each reason
        self, scope: "Scope"
    ) -> tuple[int, str] | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 403, "This server answers to 127.0.0.1 and localhost only."
        if any(origin not in self._origins for origin in headers.get(b"origin", [])):
            return 403, "Another web page has no business here."
        if not self._has_token(scope, headers):
            return 403, "The token is missing or wrong; open the address that rankscope printed."
        length = headers.get(b"content-length", [b"0"])[0]
        if length.isdigit() and int(length) > MAX_BODY:
            return 413, _too_large()
        return None

    def _has_token(self, scope: "Scope", headers: dict[bytes, list[bytes]]) -> bool:
        path = scope["path"]
        if path.startswith("/static/"):
            return True  # files that every installation has
        shown = headers.get(TOKEN_HEADER, [])
        if path == "/":
            # The address of the page carries it; all that the page asks for shows it in a header.
            parts = scope["query_string"].split(b"&")
            shown = [part.removeprefix(b"token=") for part in parts if part.startswith(b"token=")]
        return len(shown) == 1 and compare_digest(shown[0], self._token)


class LongBodyError(Exception):
    """More bytes came than the request said."""


class _Limited:
    """The body of a request, as long as it is not too long."""

    def __init__(self, receive: "Receive") -> None:
        self._receive = receive
        self._total = 0

    async def receive(self) -> "Message":
        message = await self._receive()
        self._total += len(message.get("body", b""))
        if self._total > MAX_BODY:
            raise LongBodyError(_too_large())
        return message


def _too_large() -> str:
    return f"A request may have at most {MAX_BODY:,} bytes."


async def _refuse(send: Any, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
