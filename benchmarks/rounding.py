"""Bounds that count rounding, beside the same without it and beside the code before it was counted.

What is proved must lie outside of what is only computed, by little; then all are timed in turn.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.rounding_cases import LAYERS, Case, cases, layer
from benchmarks.timing import seconds
from rankscope.robust import operator_spectrum
from rankscope.robust.bounds import Box

NAME = "rounding"
REPEATS = 5
# The last commit before rounding was counted.
BEFORE = "8378ffa9a321630ecd69bed6cae76a3752a11576"
HERE = Path(__file__).parent
Ask = Callable[[str], tuple[float, Tensor]]


def run() -> Iterator[dict[str, object]]:
    with before() as ask:
        for name, proved in cases(is_before=False).items():
            yield row(name, proved, computed(name, proved), ask)


def computed(name: str, proved: Case) -> Case:
    """The same without rounding; norms as LAPACK has them."""
    if name in LAYERS:
        module, shape = layer(name)
        return lambda: operator_spectrum(module, shape)[:1]

    def plain() -> Tensor:
        with (
            patch("rankscope.robust.bounds._rounded", lambda *given, **_: Box(*given[4])),
            patch("rankscope.robust.bounds._slack", lambda *given: torch.zeros_like(given[3][0])),
            patch("rankscope.robust.lipschitz._local_error", lambda *_: None),
            patch("rankscope.robust.lipschitz._spread_norms", lambda *_: ()),
        ):
            return proved()

    return plain


def row(name: str, proved: Case, plain: Case, ask: Ask | None) -> dict[str, object]:
    found, bare = proved().flatten(), plain().flatten()
    old = ask(name)[1] if ask is not None else bare
    is_norm = name in LAYERS
    for other in (bare, old):
        outside = found - other if is_norm else other - found
        # What was only computed may be off by a few roundings itself.
        assert bool((outside >= -1e-9 * other.abs()).all()), name
    apart = (found - bare).abs() / bare.abs().max()
    times = []
    for _ in range(REPEATS + 1):
        taken = seconds(proved), seconds(plain), ask(name)[0] if ask is not None else float("nan")
        times.append(taken)
    over_plain = statistics.median(first / second for first, second, _ in times[1:])
    over_before = statistics.median(first / third for first, _, third in times[1:])
    return {
        "case": name,
        "proved_over_computed": round(over_plain, 3),
        "proved_over_before": round(over_before, 3) if ask is not None else None,
        "proved_s": round(statistics.median(first for first, _, _ in times[1:]), 4),
        # Of samples that are certified or not, the share that changes.
        "apart": f"{float(apart.mean() if name == 'lipschitz' else apart.max()):.1e}",
    }


@contextmanager
def before() -> Iterator[Ask | None]:
    """Asks a process with the sources of the commit before; None where git does not have it."""
    command = ["git", "-C", str(HERE.parent), "archive", BEFORE, "src"]
    git = shutil.which("git")
    packed = subprocess.run(command, capture_output=True, check=False) if git else None
    if packed is None or packed.returncode:
        yield None
        return
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        process = subprocess.Popen(
            [sys.executable, str(HERE / "rounding_cases.py")],
            env={**os.environ, "PYTHONPATH": str(Path(folder) / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def ask(name: str) -> tuple[float, Tensor]:
            print(name, file=questions, flush=True)
            taken, found = json.loads(answers.readline())
            return taken, torch.tensor(found, dtype=torch.float64)

        try:
            yield ask
        finally:
            questions.close()
            process.wait()
