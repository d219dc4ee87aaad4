r"""The difference of two models as an adapter that peft loads onto the first.

A matrix whose difference has few directions above chance is stored as two factors (LoRA),
:math:`\Delta \approx B A`; whatever else was changed (norms, embeddings, biases, full-rank changes)
is stored whole, in `modules_to_save`. The error that is left is measured on what was written.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankscope.auditing.differences import Differences, differing_names, read_finite
from rankscope.errors import RequestError, printable
from rankscope.files import folder_beside
from rankscope.tensor_files.sources import TensorSource

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_SHOWN = 4
# What models call their tables of vectors: rows are looked up, and peft has another form for them.
_TABLES = re.compile(r"(^|\.)(\w*embed\w*|wte|wpe|shared|emb_\w+)$")
# Models whose layers are transformers' `Conv1D`, with inputs along the first axis.
_TRANSPOSED_TYPES = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc|q_attn)$")


@dataclass(frozen=True)
class Adapter:
    """What was written.

    Args:
        ranks: of the factors, by the name of the module.
        whole: modules that are stored whole.
        parameters: numbers in the adapter.
        error: norm of what the adapter does not give, over the norm of the whole difference.
        relative_error: the same over the norm of the tuned model's weights.
    """

    ranks: Mapping[str, int]
    whole: tuple[str, ...]
    parameters: int
    error: float
    relative_error: float


def write_adapter(
    folder: Path,
    base: TensorSource,
    tuned: TensorSource,
    differences: Differences,
    *,
    name: str,
    configuration: Mapping[str, object] | None = None,
) -> Adapter:
    """Write the folder, whole or not at all.

    Args:
        folder: to write; must not be there, or be empty.
        base: before.
        tuned: after.
        differences: of the two.
        name: of the base, for whoever loads the adapter.
        configuration: of the base, which says how its layers keep their weights.

    Raises:
        RequestError: if nothing was changed, tensors are missing or reshaped, or an adapter cannot
            hold a change.
        OutputError: if the folder cannot be written.
    """
    _require_adaptable(differences, configuration or {})
    modules = _modules(differences)
    is_transposed_type = (configuration or {}).get("model_type") in _TRANSPOSED_TYPES
    ranks: dict[str, int] = {}
    stored: dict[str, Tensor] = {}
    lost = 0.0
    whole = [module for module, rank in modules.items() if rank is None]
    for row in differences.changed:
        module = row.name.rpartition(".")[0]
        rank = modules[module]
        if rank is None:
            continue
        if rank == 0:
            lost += row.norm**2
            continue
        before, after = (read_finite(source, row.name) for source in (base, tuned))
        difference = after - before
        is_transposed = is_transposed_type and _TRANSPOSED.search(module) is not None
        inner, outer = _factors(difference.T if is_transposed else difference, rank)
        product = outer.double() @ inner.double()
        lost += float((difference - (product.T if is_transposed else product)).norm()) ** 2
        ranks[module] = rank
        stored[f"{_PREFIX}{module}.lora_A.weight"] = inner
        stored[f"{_PREFIX}{module}.lora_B.weight"] = outer
    for entry in tuned.entries:
        if entry.name.rpartition(".")[0] in whole:
            stored[f"{_PREFIX}{entry.name}"] = tuned.read(entry.name).clone().contiguous()
    document = _configuration(ranks, whole, name, is_transposed=is_transposed_type)
    _write(folder, document, stored)
    total = math.sqrt(sum(row.norm**2 for row in differences.tensors))
    size = math.sqrt(sum(float(read_finite(tuned, e.name).norm()) ** 2 for e in tuned.entries))
    return Adapter(
        ranks,
        tuple(whole),
        sum(tensor.numel() for tensor in stored.values()),
        math.sqrt(lost) / total,
        math.sqrt(lost) / size,
    )


def _require_adaptable(differences: Differences, configuration: Mapping[str, object]) -> None:
    names = list(differing_names(differences))
    if names:
        shown = ", ".join(map(printable, names[:_SHOWN]))
        raise RequestError(
            f"diff -o: {len(names)} tensors are in one model only or have another shape, such as "
            f"{shown}; an adapter cannot add or resize them."
        )
    if not differences.changed:
        raise RequestError("diff -o: the two models are equal; there is nothing to write.")
    held = {row.name for row in differences.tensors}
    is_tied = configuration.get("tie_word_embeddings") is True and "lm_head.weight" not in held
    for row in differences.changed:
        module, _, part = row.name.rpartition(".")
        if part not in ("weight", "bias") or not module:
            raise RequestError(
                f"diff -o: {printable(row.name)} was changed, which is no weight or bias of a "
                "module; peft's adapters have no place for it."
            )
        if is_tied and _TABLES.search(module):
            raise RequestError(
                f"diff -o: {printable(row.name)} was changed (relative size {row.relative:.3g}) "
                "and is tied to the head; an adapter would change only one of the two."
            )


def _modules(differences: Differences) -> dict[str, int | None]:
    """Changed modules with the rank of their factors; None for those that are stored whole."""
    modules: dict[str, int | None] = {}
    for row in differences.changed:
        module, _, part = row.name.rpartition(".")
        is_factored = (
            part == "weight"
            and len(row.shape) == 2
            and row.rank is not None
            and not _TABLES.search(module)
            and row.rank * sum(row.shape) < math.prod(row.shape)
            and module not in modules
        )
        modules[module] = row.rank if is_factored else None
    return modules


def _factors(difference: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A (rank, columns) and B (rows, rank) with the best product, in float32."""
    left, values, right = torch.linalg.svd(difference, full_matrices=False)
    roots = values[:rank].sqrt()
    inner = (roots[:, None] * right[:rank]).float().contiguous()
    return inner, (left[:, :rank] * roots).float().contiguous()


def _configuration(
    ranks: Mapping[str, int], whole: list[str], name: str, *, is_transposed: bool
) -> dict[str, object]:
    # The names are patterns for peft; a scale of alpha / rank = 1 leaves the product as it is.
    pattern = {re.escape(module): rank for module, rank in ranks.items()}
    most = max(ranks.values(), default=1)
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": name,
        "inference_mode": True,
        "r": most,
        "lora_alpha": most,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "use_rslora": False,
        "init_lora_weights": True,
        "rank_pattern": pattern,
        "alpha_pattern": pattern,
        "target_modules": list(ranks),
        "modules_to_save": whole or None,
    }


def _write(folder: Path, document: Mapping[str, object], stored: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    target = folder.absolute()
    if not document["target_modules"]:
        raise RequestError(
            f"diff -o: none of the {len(stored):,} changed tensors is a matrix with directions "
            "above chance that an adapter would store smaller; keep the tuned model itself."
        )
    if target.is_dir() and any(target.iterdir()):
        raise RequestError(f"diff -o: {str(folder)!r} is not empty; name a new folder.")
    with folder_beside(target) as made:
        (made / CONFIG).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        save_file(stored, made / WEIGHTS, metadata={"format": "pt"})
        made.rename(target)
