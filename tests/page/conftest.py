"""A session and its server, without and with a socket."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from tests.auditing.conftest import (  # noqa: E402, F401 - fixtures
    convolutional,
    matrix,
    shape_only,
    transformer,
)
from tests.page.small_models import save_llama  # noqa: E402

from rankscope.page import Session, bound_socket, make_app  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass
class Served:
    """A running server, and what a page would ask it."""

    session: Session
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.session.token}"

    def send(
        self,
        path: str,
        body: bytes | None = None,
        method: str | None = None,
        **headers: str | None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers; a header that is None is left out."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {
            "Host": f"127.0.0.1:{self.port}",
            "X-Rankscope-Token": self.session.token,
            "Content-Type": "application/json",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method or ("GET" if body is None else "POST"), path, skip_host=True)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None and "Content-Length" not in sent:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content, {k.lower(): v for k, v in response.getheaders()}

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer as plain data; an error is raised."""
        sent = None if body is None else json.dumps(body).encode()
        status, content, _ = self.send(f"/api{path}", sent)
        document = json.loads(content)
        if status != 200:
            raise ValueError(document["error"])
        return document


def serve_in_thread(session: Session) -> Iterator[Served]:
    listening: socket.socket = bound_socket(0)
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        make_app(session, port),
        log_level="critical",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=120,  # a busy machine may stand still between two requests
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    end = time.monotonic() + 30
    while not server.started and time.monotonic() < end:
        time.sleep(0.01)
    yield Served(session, port)
    server.should_exit = True
    session.close()
    thread.join(timeout=10)
    listening.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The embedded transformer, opened."""
    folder: Path = tmp_path_factory.mktemp("open") / "output"
    yield from serve_in_thread(Session(None, folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def llama(folder: Path) -> Iterator[Served]:
    model = save_llama(folder / "llama")
    yield from serve_in_thread(Session(str(model), folder / "output"))


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'rankscope[dev]'")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


# --- What tests of several views ask --------------------------------------------------------------


REQUEST: dict[str, Any] = {
    "keep": 0.7,
    "by": "parameters",
    "also": None,
    "pinned": {},
    "forbidden": [],
}


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError


def over(served: Served, number: int) -> Any:
    def found() -> Any:
        jobs = served.ask("/jobs")["jobs"]
        return next(
            (
                job
                for job in jobs
                if job["number"] == number and job["state"] not in ("waiting", "running")
            ),
            None,
        )

    return until(found)


def plan(served: Served, method: str = "exact", **changes: Any) -> Any:
    return served.ask("/plan", {**REQUEST, **changes, "method": method})
