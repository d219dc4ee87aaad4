"""A real language model: audited against svdvals alone, and planned with measured losses.

SmolLM2-135M as a Hugging Face folder, and the training text of wikitext-2, are looked for below
RANKSCOPE_DATA (`smollm2/`, `wikitext-2/train.txt`). `svdvals` decomposes every matrix of the file
with `torch.linalg.svdvals` in its own dtype, one thread, and gives nothing else; times are those of
the processor, in turns. The plan is that of

    rankscope compress smollm2 --keep 0.8 --text train.txt --backend threading --jobs 2 --dry-run

in a fresh process: wall time, and the most memory that the process held, over the bytes of the
weights in the file. LANGUAGE_MODELS=audit (a minute) or plan (many) runs one of the two.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.peak_memory import peak_mebibytes
from benchmarks.timing import processor_seconds
from rankscope.cli.main import main
from rankscope.errors import DataError
from rankscope.networks.published_weights import find_data
from rankscope.tensor_files.opening import open_tensors
from rankscope.verbs import audit

NAME = "language_models"
NUM_PAIRS = 3
JOBS = 2
KEEP = 0.8


def run() -> Iterator[dict[str, object]]:
    wanted = os.environ.get("LANGUAGE_MODELS", "audit,plan").split(",")
    try:
        weights = find_data("smollm2/model.safetensors", None, source="take SmolLM2-135M-Instruct")
        text = find_data("wikitext-2/train.txt", None, source="take the raw text of wikitext-2")
    except DataError as error:
        yield {"case": "SmolLM2", "left_out": str(error)}
        return
    if "audit" in wanted:
        yield audit_row(weights)
    if "plan" in wanted:
        yield plan_row(weights, text)


def audit_row(weights: Path) -> dict[str, object]:
    """The whole audit of the folder over the singular values of its matrices."""
    pairs = []
    for _ in range(NUM_PAIRS):
        ours = processor_seconds(lambda: audit(weights.parent))
        pairs.append((ours, processor_seconds(lambda: singular_values(weights))))
    return {
        "case": "audit over svdvals",
        "audit_seconds": round(statistics.median(ours for ours, _ in pairs), 1),
        "svdvals_seconds": round(statistics.median(theirs for _, theirs in pairs), 1),
        "time_ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
    }


def singular_values(path: Path) -> None:
    tensors = open_tensors(path)
    for entry in tensors.entries:
        matrix = tensors.read(entry.name)
        if matrix.ndim == 2:
            torch.linalg.svdvals(matrix)


def plan_row(weights: Path, text: Path) -> dict[str, object]:
    """Minutes and memory of a plan, in a process of its own."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.language_models", str(weights.parent), str(text)],
        capture_output=True,
        text=True,
        check=True,
    )
    mebibytes = float(done.stdout.splitlines()[-1])
    return {
        "case": f"plan at {KEEP:g} with measured losses",
        "jobs": JOBS,
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "mebibytes": round(mebibytes),
        "memory_over_weights": round(mebibytes * 2**20 / weights.stat().st_size, 2),
    }


def _plan(folder: str, text: str) -> None:
    command = ["compress", folder, "--keep", str(KEEP), "--text", text]
    assert main([*command, "--backend", "threading", "--jobs", str(JOBS), "--dry-run"]) == 0
    print(f"\n{peak_mebibytes():.0f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    _plan(*sys.argv[1:])
