"""Run every benchmark: `make bench`, or `python -m benchmarks NAME …` for some.

Each prints its rows and appends them, with the machine, to `benchmarks/results/NAME.jsonl`.
"""

import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

import torch

HERE = Path(__file__).parent
NAMES = (
    "drawing",
    "contraction",
    "reading",
    "modular_rank",
    "certificates",
    "attention",
    "token_mixers",
    "sparsify",
    "tunable_attention",
    "cp",
    "audit",
    "layers",
    "orthogonal",
    "rounding",
    "constructions",
    "generalization",
    "classifiers",
    "compression",
    "training",
    "page_load",
    "language_models",
)


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
    }


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    (HERE / "results").mkdir(exist_ok=True)
    for name in names or NAMES:
        for row in import_module(f"benchmarks.{name}").run():
            print(f"{name:12s}", "  ".join(f"{key}={value}" for key, value in row.items()))
            with (HERE / "results" / f"{name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"benchmark": name, **row, **machine()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
