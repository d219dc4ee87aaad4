"""`rankscope evaluate`: how good, how large and how fast a model is, beside its dense model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import RequestError
from rankscope.files import is_file, is_folder

if TYPE_CHECKING:
    from rankscope.models import Model

_MEASURES = {
    "perplexity": ("perplexity", ".4f"),
    "loss": ("loss (nats)", ".4f"),
    "accuracy": ("accuracy", ".2%"),
    "parameters": ("parameters", ",d"),
    "bytes": ("bytes", ",d"),
    "inference_activation_bytes": ("activations, inference (bytes)", ",d"),
    "training_activation_bytes": ("activations, training step (bytes)", ",d"),
    "cache_bytes_per_token": ("key-value cache per token (bytes)", ",.0f"),
    "prefill_tokens_per_second": ("prefill (tokens / s)", ",.1f"),
    "generated_tokens_per_second": ("generation (tokens / s)", ",.1f"),
    "samples_per_second": ("samples / s", ",.1f"),
}


def run(
    model: Annotated[
        str,
        typer.Argument(
            help="A folder as Hugging Face or `compress` writes it, package.module:factory, or a "
            "built-in network.",
            show_default=False,
        ),
    ],
    text: Annotated[
        Path | None,
        typer.Option(help="A text in UTF-8, cut by the folder's tokenizer, for the perplexity."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="digits, cifar10, …, a folder with them, or a .safetensors or .npz file of inputs "
            "with labels (accuracy) or without."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="DENSE", help="The dense model, to compare with in the same run."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of a window; as many as the model takes, at most 1024."),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens from window to window; the context.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Only the first N tokens of the text.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Only the first N samples of the data.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file, or a state dict saved by torch (weights only)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure perplexity or accuracy, agreement with the dense model, size, memory and speed."""
    if (text is None) == (data is None):
        raise RequestError("evaluate: give --text FILE or --data …, one of the two.")
    if context is not None and context < 2:
        raise RequestError(f"--context takes 2 tokens or more, got {context}.")
    from rankscope.compression.evaluating import evaluate

    folder = Path(data) if data is not None and is_folder(data) else None
    opened = _open(model, weights, folder)
    dense = None if against is None else _open(against, None, folder)
    if text is not None:
        task = _text(opened, text, tokens, context, stride)
        if dense is not None:
            _require_same_vocabulary(opened, dense)
    else:
        assert data is not None
        task = _data(opened, data, samples)
    with console.reporting("evaluate") as report:
        evaluation = evaluate(
            opened.module, task, dense=None if dense is None else dense.module, report=report
        )
    document = evaluation.to_dict()
    if as_json:
        console.print_json({"model": model, "against": against, **document})
        return
    _print(document)


def _open(word: str, weights: Path | None, folder: Path | None) -> "Model":
    from rankscope.models import open_model

    opened = open_model(word, weights=weights, data=folder)
    opened.require_for("evaluate")
    return opened


def _text(
    opened: "Model", text: Path, tokens: int | None, context: int | None, stride: int | None
) -> Any:
    if opened.folder is None:
        raise RequestError(
            f"--text is cut by the tokenizer of a folder of Hugging Face, but {opened.name!r} is a "
            f"{opened.kind}; give inputs with --data."
        )
    from rankscope.compression.evaluation_tasks import Text
    from rankscope.hf import read_numbers

    numbers = read_numbers(opened.folder, text, opened.module, first=tokens)
    return Text(numbers, context, stride)


def _require_same_vocabulary(opened: "Model", dense: "Model") -> None:
    sizes = [_vocabulary(one.module) for one in (opened, dense)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise RequestError(
            f"--against: {dense.name!r} has {sizes[1]:,} tokens, but {opened.name!r} has "
            f"{sizes[0]:,}; compare models of the same vocabulary."
        )


def _vocabulary(module: Any) -> int | None:
    config = getattr(module, "config", None)
    text = getattr(config, "get_text_config", lambda: None)()
    size = getattr(text, "vocab_size", None)
    return size if isinstance(size, int) else None


def _data(opened: "Model", data: str, samples: int | None) -> Any:
    from rankscope.compression.evaluation_tasks import Inputs, Labelled
    from rankscope.networks.samples import read_labelled

    if not is_file(data):
        labelled = read_labelled(data, data_set=opened.data_set, count=samples)
        inputs = labelled.inputs
        if labelled.normalize is not None and not opened.takes_pixels:
            inputs = labelled.normalize(255 * inputs)
        return Labelled(inputs, labelled.labels)
    from rankscope.networks.weight_files import read_weights

    named = {name: tensor[:samples] for name, tensor in _rows(read_weights(Path(data)), data)}
    labels = named.pop("labels", None)
    given: Any = next(iter(named.values())) if len(named) == 1 else named
    if labels is None:
        return Inputs(given)
    if labels.is_floating_point():
        raise RequestError(f"--data: the labels of {data!r} are {labels.dtype}, wanted integers.")
    return Labelled(given, labels.long())


def _rows(tensors: Any, data: str) -> Any:
    counts = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()) or set(counts) == {"labels"}:
        raise RequestError(
            f"--data: wanted inputs (and labels) with the same number of samples, at least 1, in "
            f"{data!r}, got {counts}."
        )
    return tensors.items()


def _print(document: Any) -> None:
    dense = document["dense"]
    if document["tokens"] is not None:
        console.print_text(
            f"{document['tokens']:,} tokens, {document['predicted']:,} of them predicted; context "
            f"{document['context']:,}, stride {document['stride']:,}; {document['threads']} threads"
        )
    else:
        print(f"{document['samples']:,} samples; {document['threads']} threads")
    rows: list[tuple[str, ...]] = [
        ("", "model") if dense is None else ("", "model", "dense", "ratio")
    ]
    for name, (words, form) in _MEASURES.items():
        value = document[name]
        if value is None:
            continue
        row: tuple[str, ...] = (words, format(value, form))
        if dense is not None:
            other = dense[name]
            ratio = f"{value / other:.4f}" if other else ""
            row += ("" if other is None else format(other, form), ratio)
        rows.append(row)
    console.print_columns(rows, numbers=(1, 2, 3))
    if document["divergence"] is not None:
        print(
            f"divergence from the dense model {document['divergence']:.6g} nats, agreement "
            f"{document['agreement']:.2%}"
        )
    if document["output_error"] is not None:
        print(f"squared error of outputs over their squared norm {document['output_error']:.6g}")
    for note in document["notes"]:
        console.print_text(note)
