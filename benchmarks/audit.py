"""The weights of a BERT-base (110 million parameters, random) audited, against svdvals alone.

Every side reads the same tensors from the same safetensors file. `svdvals` decomposes every matrix
with `torch.linalg.svdvals` in its own dtype and gives nothing else; the audit gives rows for heads
and statistics as well. Both use one thread: on a shared machine two of them wait for each other
inside LAPACK (svdvals of 3072 x 768: 0.18 s with one, 0.4 to 10 s with two beside other work).
`weightwatcher` is left out by name if it is not installed. Peak memory is that of a fresh process
that does nothing but the audit.
"""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.peak_memory import peak_mebibytes
from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.weight_files import open_model
from rankscope.auditing.weights import audit_weights

NAME = "audit"
NUM_PAIRS = 3
WIDTH, INNER, DEPTH, HEADS, VOCABULARY = 768, 3072, 12, 12, 30522
CONFIGURATION = Configuration(
    family="bert",
    depth=DEPTH,
    width=WIDTH,
    heads=HEADS,
    head_size=WIDTH // HEADS,
    key_value_heads=HEADS,
    feed_forward=INNER,
    vocabulary=VOCABULARY,
    embedding_rank=WIDTH,
    parameters=Parameters(),
)


def run() -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        weights = bert_weights()
        save_file(weights, path)
        parameters = sum(weight.numel() for weight in weights.values())
        del weights
        pairs = [(_timed(_audit, path), _timed(_svdvals, path)) for _ in range(NUM_PAIRS)]
        for case, runs in zip(("audit", "svdvals alone"), zip(*pairs, strict=True), strict=True):
            count, _ = runs[0]
            yield {
                "case": case,
                "parameters": parameters,
                "matrices": count,
                "seconds": round(statistics.median(seconds for _, seconds in runs), 1),
            }
        ratio = statistics.median(ours[1] / theirs[1] for ours, theirs in pairs)
        yield {"case": "audit over svdvals", "time_ratio": round(ratio, 3)}
        yield {"case": "peak memory of an audit", "mebibytes": _peak_memory(path)}
        yield _weightwatcher(path)


def bert_weights() -> dict[str, Tensor]:
    """Random weights with the names and shapes of a BERT-base."""
    shapes = {
        "embeddings.word_embeddings.weight": (VOCABULARY, WIDTH),
        "embeddings.position_embeddings.weight": (512, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "pooler.dense.weight": (WIDTH, WIDTH),
    }
    for layer in range(DEPTH):
        start = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{start}.attention.{name}.weight"] = (WIDTH, WIDTH)
        shapes[f"{start}.intermediate.dense.weight"] = (INNER, WIDTH)
        shapes[f"{start}.output.dense.weight"] = (WIDTH, INNER)
    draw = torch.Generator().manual_seed(0)
    return {name: 0.02 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def _audit(path: Path) -> int:
    source = open_model(path).tensors
    assert source is not None
    return sum(len(row.matrices) for row in audit_weights(source, CONFIGURATION))


def _svdvals(path: Path) -> int:
    source = open_model(path).tensors
    assert source is not None
    for entry in source.entries:
        torch.linalg.svdvals(source.read(entry.name))
    return len(source.entries)


def _timed(call: Callable[[Path], int], path: Path) -> tuple[int, float]:
    start = time.perf_counter()
    count = call(path)
    return count, time.perf_counter() - start


def _peak_memory(path: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def _weightwatcher(path: Path) -> dict[str, object]:
    if importlib.util.find_spec("weightwatcher") is None:
        return {"case": "weightwatcher", "left_out": "weightwatcher is not installed"}
    weightwatcher = importlib.import_module("weightwatcher")
    layers = nn.ModuleDict()
    for name, weight in load_file(path).items():
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight)
        layers[name.replace(".", "_")] = layer

    def analyze(_: Path) -> int:
        return len(weightwatcher.WeightWatcher(model=layers).analyze())

    pairs = [(_timed(_audit, path), _timed(analyze, path)) for _ in range(NUM_PAIRS)]
    return {
        "case": "weightwatcher",
        "seconds": round(statistics.median(theirs[1] for _, theirs in pairs), 1),
        "matrices": pairs[0][1][0],
        "audit_over_weightwatcher": round(
            statistics.median(ours[1] / theirs[1] for ours, theirs in pairs), 3
        ),
    }


if __name__ == "__main__":
    _audit(Path(sys.argv[1]))
    print(round(peak_mebibytes()))
