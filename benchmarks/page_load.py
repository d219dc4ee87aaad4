"""The page of `rankscope open` over the loopback: first answers, the slider, and many readers.

Opens a model (RANKSCOPE_PAGE_MODEL, or the embedded transformer), waits until its candidates are
listed, checks that every plan keeps its budget, then moves the slider, quickly
and exactly, and lets 20 readers ask at once while the memory of all processes is watched.
"""

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvicorn

from rankscope.page.server import bound_socket, make_app
from rankscope.page.session import Session

NAME = "page_load"
MOVES = {"quick": 100, "exact": 20}  # of the slider
READERS = 20
SECONDS = float(os.environ.get("RANKSCOPE_PAGE_SECONDS", "60"))
REQUEST: dict[str, Any] = {"by": "parameters", "also": None, "pinned": {}, "forbidden": []}


def run() -> Iterator[dict[str, object]]:
    """Serve, ask, count."""
    model = os.environ.get("RANKSCOPE_PAGE_MODEL")
    output = os.environ.get("RANKSCOPE_PAGE_OUTPUT")
    with tempfile.TemporaryDirectory() as folder:
        session = Session(model, Path(output or folder))
        listening = bound_socket(0)
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(make_app(session, port), log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        begun = time.perf_counter()
        thread.start()
        while not server.started:
            time.sleep(0.001)
        try:
            yield from _measure(_Client(session.token, port), begun)
        finally:
            server.should_exit = True
            session.close()
            thread.join(timeout=10)


class _Client:
    """One reader with one connection."""

    def __init__(self, token: str, port: int) -> None:
        self._token, self._port = token, port
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)

    def again(self) -> "_Client":
        return _Client(self._token, self._port)

    def send(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        headers = {"X-Rankscope-Token": self._token, "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        self._connection.request("GET" if body is None else "POST", path, sent, headers)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status == 200, content[:200]
        return content

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return json.loads(self.send(f"/api{path}", body))


def _measure(client: _Client, begun: float) -> Iterator[dict[str, object]]:
    client.ask("/model")
    first = time.perf_counter() - begun
    while not client.ask("/model")["is_complete"]:
        time.sleep(0.2)
    whole = client.send("/api/model")
    yield {
        "case": "first answer, from shapes",
        "milliseconds": round(1000 * first),
        "kilobytes_when_complete": round(len(whole) / 1000),
    }
    while not (known := client.ask("/model")["candidates"]):
        time.sleep(0.2)
    lowest = known["smallest_keep"] + 0.01
    for method, moves in MOVES.items():
        times = [
            _solve(client, method, lowest + (1 - lowest) * move / moves) for move in range(moves)
        ]
        yield {"case": f"slider, {method}", **_spread(times)}
    yield {"case": f"{READERS} readers, {SECONDS:g} s", **_crowd(client, lowest)}


def _solve(client: _Client, method: str, keep: float) -> float:
    begun = time.perf_counter()
    plan = client.ask("/plan", {**REQUEST, "keep": keep, "method": method})
    spent = time.perf_counter() - begun
    assert plan["kept"]["parameters"] <= keep * plan["dense"]["parameters"] + 1
    return spent


def _spread(times: list[float]) -> dict[str, object]:
    return {
        "milliseconds_median": round(1000 * statistics.median(times), 1),
        "milliseconds_95": round(1000 * statistics.quantiles(times, n=20)[-1], 1),
        "requests": len(times),
    }


def _crowd(client: _Client, lowest: float) -> dict[str, object]:
    """Many readers at once; memory before and after, of this process and its workers."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    _solve(client, "quick", lowest)
    before = _megabytes()

    def read() -> None:
        own, keep = client.again(), lowest
        while time.perf_counter() < end:
            times.append(_solve(own, "quick", keep))
            keep = lowest + (keep - lowest + 0.037) % (1 - lowest)
            own.ask("/jobs")

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {**_spread(times), "megabytes_before": before, "megabytes_after": _megabytes()}


def _megabytes() -> int:
    """Resident memory of this process and its descendants; shared pages count once for each."""
    own = os.getpid()
    parents, sizes = {}, {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(
                line.split(":", 1) for line in path.read_text().splitlines() if ":" in line
            )
        except OSError:
            continue
        process = int(path.parent.name)
        parents[process] = int(lines["PPid"])
        sizes[process] = int(lines.get("VmRSS", "0 kB").split()[0])
    family = {own}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return round(sum(sizes.get(process, 0) for process in family) / 1000)
