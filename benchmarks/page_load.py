"""The page of `rankscope open` over the loopback: first answers, sliders, edits, and many readers.

Opens a model (RANKSCOPE_PAGE_MODEL, or the embedded transformer) by the command itself, in a
process of its own, waits until its candidates are listed, checks that every plan keeps its budget,
moves the slider, quickly and exactly, edits diagrams, and lets 20 readers ask at once, each at its
own place of the slider, while the memory of the server and its workers is watched.
"""

import json
import os
import random
import socket
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAME = "page_load"
MOVES = {"quick": 100, "exact": 20}  # of the slider
READERS = 20
EDITS = 500
SECONDS = float(os.environ.get("RANKSCOPE_PAGE_SECONDS", "60"))
REQUEST: dict[str, Any] = {"by": "parameters", "also": None, "pinned": {}, "forbidden": []}
STEP = 0.005  # of the slider


def run() -> Iterator[dict[str, object]]:
    """Serve, ask, count."""
    model = os.environ.get("RANKSCOPE_PAGE_MODEL")
    output = os.environ.get("RANKSCOPE_PAGE_OUTPUT")
    with tempfile.TemporaryDirectory() as folder, _served(model, output or folder) as client:
        begun = time.perf_counter()
        client.ask("/model")
        first = time.perf_counter() - begun
        yield from _model(client, first)
        yield from _diagrams(client.again())


@contextmanager
def _served(model: str | None, output: str) -> "Iterator[_Client]":
    words = [] if model is None else [model]
    start = "import sys; from rankscope.cli.entry import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "open", *words]
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-browser", "-o", output], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        (token,) = parse_qs(address.query)["token"]
        yield _Client(token, int(address.port or 0), process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


class _Client:
    """One reader with one connection."""

    def __init__(self, token: str, port: int, server: int) -> None:
        self._token, self._port, self.server = token, port, server
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._connection.connect()
        # As browsers do; otherwise the body waits 40 ms for the receipt of the headers.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def again(self) -> "_Client":
        return _Client(self._token, self._port, self.server)

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


# --- The model: first answer, the slider alone, many readers --------------------------------------


def _model(client: _Client, first: float) -> Iterator[dict[str, object]]:
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
        # Places between those of the slider, so that no answer is kept already.
        keeps = [lowest + (1 - lowest) * (move + 0.3) / moves for move in range(moves)]
        times = [_solve(client, method, keep) for keep in keeps]
        yield {"case": f"slider, {method}", **_spread(times)}
    both = [
        _solve(client, "quick", keep, also={"by": "bytes", "keep": (1 + keep) / 2})
        for keep in keeps
    ]
    yield {"case": "slider, two budgets, quick", **_spread(both)}
    yield {"case": f"{READERS} readers, {SECONDS:g} s", **_crowd(client, known, lowest)}


def _solve(client: _Client, method: str, keep: float, **changes: object) -> float:
    begun = time.perf_counter()
    plan = client.ask("/plan", {**REQUEST, **changes, "keep": keep, "method": method})
    spent = time.perf_counter() - begun
    assert plan["kept"]["parameters"] <= keep * plan["dense"]["parameters"] + 1
    return spent


def _crowd(client: _Client, known: dict[str, Any], lowest: float) -> dict[str, object]:
    """Many readers at once, each with a walk of its own; every fourth has pinned a weight."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    before = _megabytes(client.server)

    def read(number: int) -> None:
        own, draw = client.again(), random.Random(number)
        pinned = {} if number % 4 else {known["sites"][number % len(known["sites"])]: 0}
        # A pinned weight is not made smaller, so that less can be reached.
        places = int((1 - lowest - (0.3 if pinned else 0.0)) / STEP)
        place = draw.randrange(places)
        while time.perf_counter() < end:
            times.append(_solve(own, "quick", 1 - STEP * place, pinned=pinned))
            place = max(0, min(places - 1, place + draw.choice((-1, 1, 2))))
            own.ask("/jobs")

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(read, range(READERS)))
    after = _megabytes(client.server)
    return {**_spread(times), "megabytes_before": before, "megabytes_after": after}


# --- Diagrams: sliders, the first drawing of an irregular one, many edits -------------------------


def irregular(count: int, seed: int) -> str:
    """An einsum of so many tensors, a tree with some more bonds, that no rule of layouts knows."""
    draw = random.Random(seed)
    bonds = [(draw.randrange(max(0, tensor - 6), tensor), tensor) for tensor in range(1, count)]
    bonds += [tuple(draw.sample(range(count), 2)) for _ in range(count // 3)]  # type: ignore[misc]
    letters = string.ascii_letters + "".join(map(chr, range(0x3B1, 0x3B1 + 24)))
    legs = [""] * count
    for letter, (first, second) in zip(letters, bonds, strict=False):
        legs[first] += letter
        legs[second] += letter
    return ",".join(legs) + "->"


def _diagrams(client: _Client) -> Iterator[dict[str, object]]:
    client.ask("/diagrams")
    time.sleep(3)  # as long as a reader looks at the templates
    for count in (12, 60):
        first = [_edit(client, {"do": "einsum", "text": irregular(count, s)}) for s in range(20)]
        yield {"case": f"irregular diagram of {count} tensors, drawn first", **_spread(first)}
        moves = [_edit(client, {"do": "size", "name": "a", "size": size}) for size in range(2, 42)]
        yield {"case": f"irregular diagram of {count} tensors, size slider", **_spread(moves)}
    client.ask("/diagrams/edit", {"edit": {"do": "einsum", "text": irregular(12, 0)}})
    times = [_one_of_many(client, number) for number in range(EDITS // 5)]
    before = _megabytes(client.server)
    times += [_one_of_many(client, number) for number in range(EDITS)]
    after = _megabytes(client.server)
    yield {
        "case": f"{EDITS} edits, with undo",
        **_spread(times),
        "megabytes_before": before,
        "megabytes_after": after,
    }


def _edit(client: _Client, edit: dict[str, object]) -> float:
    begun = time.perf_counter()
    view = client.ask("/diagrams/edit", {"edit": edit})
    spent = time.perf_counter() - begun
    assert view["svg"].startswith("<svg")
    return spent


def _one_of_many(client: _Client, number: int) -> float:
    if number % 10 == 9:
        begun = time.perf_counter()
        client.ask("/diagrams/undo", {})
        return time.perf_counter() - begun
    return _edit(client, {"do": "size", "name": "abc"[number % 3], "size": 2 + number % 97})


def _spread(times: list[float]) -> dict[str, object]:
    return {
        "milliseconds_median": round(1000 * statistics.median(times), 1),
        "milliseconds_95": round(1000 * statistics.quantiles(times, n=20)[-1], 1),
        "requests": len(times),
    }


def _megabytes(server: int) -> int:
    """Resident memory of the server and its descendants; shared pages count once for each."""
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
    family = {server}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return round(sum(sizes.get(process, 0) for process in family) / 1000)
