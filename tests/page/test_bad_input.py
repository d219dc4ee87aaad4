"""What goes wrong while the page is open is said, nothing saved is lost, and it goes on."""

import multiprocessing
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.page.conftest import REQUEST, Served, over, plan, serve_in_thread, until

from rankscope.page import Session

pytestmark = pytest.mark.slow


def ready(served: Served) -> Any:
    return until(lambda: (m := served.ask("/model"))["candidates"] and m["is_complete"] and m)


def saved(served: Served, name: str) -> Any:
    return over(served, served.ask("/save", {**REQUEST, "name": name})["job"]["number"])


def test_workers_that_are_killed_are_started_again(llama: Served) -> None:
    ready(llama)
    first = plan(llama, "quick")
    for _ in range(2):
        for process in multiprocessing.active_children():
            os.kill(int(process.pid or 0), signal.SIGKILL)
            process.join()
        again = plan(llama, "quick", keep=0.7 + 1e-9)
        assert again["rows"] == first["rows"]


# The last of this module that reads the folder: it is gone afterwards.
def test_a_folder_that_changes_or_vanishes_is_said_and_what_was_saved_stays(
    llama: Served, folder: Path
) -> None:
    ready(llama)
    assert saved(llama, "first")["state"] == "done"
    kept = (folder / "output" / "first" / "model.safetensors").read_bytes()
    weights = folder / "llama" / "model.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:-4] + bytes(4))
    assert "The model has changed since" in saved(llama, "second")["error"]
    weights.write_bytes(original[:100])
    assert saved(llama, "second")["state"] == "failed"
    shutil.rmtree(folder / "llama")
    gone = saved(llama, "second")
    assert gone["state"] == "failed"
    assert "llama" in gone["error"]
    assert plan(llama, "quick")["rows"]
    assert llama.ask("/model")["is_complete"]
    assert not (folder / "output" / "second").exists()
    assert (folder / "output" / "first" / "model.safetensors").read_bytes() == kept
    llama.ask("/candidates/retry", {})
    problem = until(lambda: llama.ask("/model")["problems"].get("candidates"))
    assert "llama" in problem


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00",  # the greeting of TLS
    b"GET / HTTP/1.1\r\nHost: " + b"x" * 200_000,
    b"POST /api/plan HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/plan HTTP/1.1\r\nContent-Length: 5\r\n\r\n{}",  # and gone
    bytes(range(256)) * 40,
]


def test_a_browser_that_sends_garbage_disturbs_nobody(served: Served) -> None:
    for garbage in GARBAGE:
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(garbage)
    for _ in range(3):
        assert served.send("/api/jobs")[0] == 200


HOSTILE = "<script>alert(1)</script>"


def test_names_that_are_markup_stay_names(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "|")
    folder.mkdir()
    tensors = {f"{HOSTILE}.{n}.weight": torch.eye(4) + n for n in range(3)}
    save_file(tensors, folder / "model.safetensors")
    for served in serve_in_thread(Session(str(folder / "model.safetensors"), tmp_path / HOSTILE)):
        status, content, _ = served.send(f"/?token={served.session.token}")
        assert status == 200
        assert b"<script>alert" not in content
        names = {each["name"] for each in served.ask("/model")["tensors"]}
        assert names == set(tensors)


def test_ten_thousand_tensors_are_shown(tmp_path: Path) -> None:
    tensors = {f"layers.{n // 100}.part{n % 100}.weight": torch.eye(2) for n in range(10_000)}
    save_file(tensors, tmp_path / "many.safetensors")
    for served in serve_in_thread(Session(str(tmp_path / "many.safetensors"), tmp_path / "out")):
        status, content, _ = served.send("/api/model")
        assert status == 200
        assert len(served.ask("/model")["tensors"]) == 10_000
        assert len(content) < 3_000_000
