"""What a worker does to predict losses: it measures them, weight by weight, on a text or data set.

Everything is kept in one folder for each model and each text: `losses.json`, from which a
measurement that was ended goes on, and then `table.json` and `source.json`.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankscope.errors import RequestError
from rankscope.models import Model, open_model
from rankscope.progress import Progress, Report

TABLE, LOSSES, SOURCE = "table.json", "losses.json", "source.json"
SEQUENCES, BATCH = 32, 8  # of characters, for the embedded transformer
MOST_SOURCES = 50


def sources(model: str | None) -> list[str]:
    """What losses of a model can be measured on: texts in its folder, or its data set, by name."""
    from rankscope.networks.catalogue import BUILT_IN

    folder = text_folder(model)
    if folder is not None:
        return sorted(path.name for path in folder.glob("*.txt") if path.is_file())[:MOST_SOURCES]
    built_in = BUILT_IN.get(model or "")
    return [built_in.data_set] if built_in is not None and built_in.data_set else []


def text_folder(model: str | None) -> Path | None:
    """Where texts of a model stand; None if it is no folder."""
    from rankscope.auditing.embedded import embedded_model
    from rankscope.page.model_work import EMBEDDED

    if model in (None, EMBEDDED):
        return embedded_model(EMBEDDED)
    named = open_model(str(model))
    return named.folder


def measure(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """Candidates scored by the loss on a source, in a file; the same again goes on from there."""
    from rankscope.compression.candidate_file import write_table
    from rankscope.compression.planning import list_candidates
    from rankscope.files import write_atomically
    from rankscope.page import model_work

    opened = open_model(arguments["model"] or model_work.EMBEDDED)
    report(Progress("reading the weights", 0, 1))
    source = arguments["source"]
    batches = read_batches(opened, source)
    name = f"{model_work.content_hash(opened)}-{_hash_of(batches)[:16]}"
    folder = Path(arguments["output"]) / "candidates" / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = model_work.plan_settings(opened, scoring(opened, batches, folder))
    table = list_candidates(opened.module, settings, report)
    found = {"source": source, "loss": _own_loss(opened, batches)}
    write_atomically(folder / SOURCE, json.dumps(found).encode())
    write_table(table, folder / TABLE)
    return model_work.described(opened, folder / TABLE, was_cached=False)


def scoring(opened: Model, batches: list[Any], folder: Path) -> Any:
    """The loss on batches, remembered in a folder."""
    from rankscope.compression.loss_scores import Divergence, Loss

    # Built-in networks give logits without saying so.
    distance = None if opened.folder is not None else Divergence()
    return Loss(batches, distance=distance, memory=folder / LOSSES)


def scoring_of_table(opened: Model, path: Path, left: list[str], report: Report) -> Any:
    """The scoring that a table in a file was made with, ready to carry out its plans.

    Raises:
        RequestError: if what the losses were measured on has changed since.
    """
    source = read_source(path)["source"]
    batches = read_batches(opened, source)
    if not path.parent.name.endswith(f"-{_hash_of(batches)[:16]}"):
        raise RequestError(f"{source} has changed since losses were measured; measure them again.")
    found = scoring(opened, batches, path.parent)
    found.prepare(opened.module, left=left, report=report)
    return found


def read_source(path: Path) -> dict[str, Any]:
    """What the losses of a table were measured on, and the loss of the model itself there.

    Raises:
        ModelFileError: if the file beside the table cannot be read.
    """
    from rankscope.errors import ModelFileError
    from rankscope.strict_json import Number, Object, Optional, Text, read_as, read_document

    reader = Object({"source": Text(), "loss": Optional(Number())})
    beside = path.with_name(SOURCE)
    who = f"{beside} does not say what losses were measured on"
    return read_as(reader, read_document(beside), who=who, error=ModelFileError)


def read_batches(opened: Model, source: str) -> list[Any]:
    """The inputs of a source, as the model takes them.

    Raises:
        RequestError: if there is no such source any more, or the model cannot read it.
    """
    from rankscope.page.model_work import EMBEDDED

    model = None if opened.name == EMBEDDED else opened.name
    known = sources(model if opened.folder is None else str(opened.folder))
    if source not in known:
        raise RequestError(f"There is no {source[:100]!r} to measure losses on any more.")
    folder = text_folder(model) if opened.folder is None else opened.folder
    if folder is None:
        from rankscope.networks.samples import read_calibration

        return list(read_calibration(source, data_set=opened.data_set))
    if opened.folder is not None:
        from rankscope.hf import read_tokens

        return list(read_tokens(folder, folder / source, opened.module))
    return _characters(folder, source, length=int(opened.example.shape[-1]))


def _characters(folder: Path, source: str, length: int) -> list[Any]:
    import torch

    numbers: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
    text = (folder / source).read_text("utf-8")
    tokens = torch.tensor([numbers[character] for character in text if character in numbers])
    rows = tokens[: len(tokens) // length * length].reshape(-1, length)[:SEQUENCES]
    return list(torch.split(rows, BATCH))


def _hash_of(batches: list[Any]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        for tensor in batch.values() if isinstance(batch, Mapping) else (batch,):
            found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def _own_loss(opened: Model, batches: list[Any]) -> float | None:
    """Cross entropy of the next token, in nats, of the model as it is; None if it reads no text."""
    import torch
    from torch.nn import functional

    from rankscope.compression.scores import run
    from rankscope.modes import inference

    total, count = 0.0, 0
    with torch.no_grad(), inference(opened.module):
        for batch in batches:
            tokens = batch["input_ids"] if isinstance(batch, Mapping) else batch
            output: Any = run(opened.module, batch)
            logits = getattr(output, "logits", output)
            if tokens.is_floating_point() or getattr(logits, "ndim", 0) != 3:
                return None
            losses = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="sum"
            )
            total, count = total + float(losses), count + tokens[:, 1:].numel()
    return total / count if count else None
