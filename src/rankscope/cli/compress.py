"""`rankscope compress`: a smaller model under one budget, or the plan for it."""

import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json, as_command, choose, read_shape
from rankscope.errors import DataError, RequestError
from rankscope.files import is_folder, require_writable, write_atomically

if TYPE_CHECKING:
    from rankscope.models import Model
    from rankscope.networks.datasets import DataSet

REPORT, PAGE = "report.json", "report.html"
WIDE = 120  # columns that a plan needs to be a table
REPAIR_SEQUENCES = 4096  # of a text, at most
SCORED_TOKENS = 2048  # the last ones of a text, on which the perplexity is said
EXPORTED = {"onnx": "model.onnx", "torch": "model.pt2"}


def run(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="A folder as Hugging Face writes it, package.module:factory, or a built-in "
            "network (resnet32, minilm, digits, …).",
            show_default=False,
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file, or a state dict saved by torch (weights only)."),
    ] = None,
    keep: Annotated[float, typer.Option(help="Share of the model's total that may be kept.")] = 0.1,
    by: Annotated[
        str,
        typer.Option(help="What keep counts: parameters, flops (operations), bytes or latency."),
    ] = "parameters",
    also: Annotated[
        str | None,
        typer.Option(metavar="latency=0.5", help="A second budget, to be met as well."),
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option(
            metavar="svd,tucker,…",
            help="svd, cp, tucker, tensor-train, tensor-ring, or r-… of the last four.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Score errors on real inputs: cifar10, digits, …, a folder with them, or a "
            ".safetensors or .npz file of inputs.",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="Score errors on a text in UTF-8, cut by the folder's tokenizer."),
    ] = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="loss",
            help="What an error counts for: weights, activations or loss; with data, loss.",
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option("--input", metavar="1,3,32,32", help="Shape of one batch, to count flops."),
    ] = None,
    bits: Annotated[
        str | None,
        typer.Option(metavar="32,8,4", help="Bits of a stored number to choose among."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="A relative error for each weight, instead of keep.")
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave this module alone; * for any part of a name."),
    ] = None,
    repair: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Train the compressed model for so long on the data or the text, to give what "
            "the original gives; a run that was ended goes on when it is called again.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="loky", help="Spread candidates and losses: threading, loky, ray or dask."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="How many workers; all cores if not given.")] = (
        None
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan, and print it.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write model.safetensors, plan.json and report.html into this folder.",
        ),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="onnx", help="Also write a file that runs without Rankscope: onnx or torch."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose a format and ranks for every weight, all under one budget, and write the model."""
    _check_request(output, export, repair, dry_run=dry_run, has_inputs=(data, text) != (None, None))
    unit, second, chosen = _read_unit(by), _read_also(also), _read_formats(formats)
    from rankscope.compression.plan import Budget
    from rankscope.compression.planning import Tolerance, plan_compression
    from rankscope.workers import Workers

    _free_at_once()
    opened = _open(model, weights, data, example)
    network, remarks = _network(opened, may_be_untrained=dry_run)
    calibration = _calibration(opened, network, data, text)
    batch = calibration[0] if calibration and example is None else opened.example_tensors
    is_chosen = (backend, jobs) != (None, None)
    workers = Workers(backend or "threading", jobs) if is_chosen else None
    memory = None if output is None or dry_run else _losses_file(output)
    scoring = _scoring(scores, calibration, workers, memory)
    with console.reporting("planning") as report:
        plan = plan_compression(
            network,
            Budget(keep, unit, second) if tolerance is None else Tolerance(tolerance),
            formats=chosen,
            example=batch,
            scores=scoring,
            bits=_read_bits(bits),
            leave=leave or (),
            workers=workers,
            report=report,
        )
    plan = replace(plan, notes=(*remarks, *plan.notes))
    measured = None
    if output is not None and not dry_run:
        compressed = _compressed(network, plan, scoring, batch)
        if repair is not None:
            _repair(opened, network, compressed, (data, text), repair, output)
        scorer = _scorer(opened, network, (data, text), calibration)
        measured = _write(compressed, network, output, (opened, scorer, batch), export)
        plan = compressed.plan
    _tell(plan, measured, output, as_json=as_json)
    if measured is not None:
        _warn(measured, context, repair)


def _free_at_once() -> None:
    """Let glibc give freed arrays back to the system.

    It keeps those below 32 MB for each thread: for a model of 500 MB as much again.
    """
    import ctypes

    with suppress(AttributeError, OSError, TypeError):  # another C library has no such option
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**20)


_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


def _check_request(
    output: Path | None,
    export: str | None,
    repair: float | None,
    *,
    dry_run: bool,
    has_inputs: bool,
) -> None:
    if output is None and not dry_run:
        raise RequestError("compress: say where to write with -o FOLDER, or plan with --dry-run.")
    if output is not None and not dry_run:
        require_writable(output, is_folder=True)
    if export is not None:
        choose("--export", export, EXPORTED)
    if repair is not None and not has_inputs:
        raise RequestError("--repair trains on inputs: give them with --data or --text.")


def _open(model: str, weights: Path | None, data: str | None, example: str | None) -> "Model":
    from rankscope.models import open_model

    folder = Path(data) if data is not None and is_folder(data) else None
    inputs = () if example is None else (read_shape(example),)
    opened = open_model(model, weights=weights, data=folder, inputs=inputs)
    opened.require_for("compress")
    return opened


def _network(opened: "Model", *, may_be_untrained: bool) -> tuple[Any, list[str]]:
    """The module, and what a reader should know about its weights."""
    try:
        return opened.module, []
    except DataError as error:
        if not may_be_untrained:
            raise
        return opened.untrained, [f"The weights are untrained: {error}"]


def _calibration(opened: "Model", network: Any, data: str | None, text: Path | None) -> Any:
    """Batches of the data or the text that was given, as the model takes them; None without."""
    if text is None:
        from rankscope.networks.samples import read_calibration

        return None if data is None else read_calibration(data, data_set=opened.data_set)
    if data is not None:
        raise RequestError("compress: --data and --text were both given; give one of them.")
    if opened.folder is None:
        raise RequestError(
            f"--text is cut by the tokenizer of a folder of Hugging Face, but {opened.name!r} is a "
            f"{opened.kind}; give inputs with --data."
        )
    from rankscope.hf import read_tokens

    return read_tokens(opened.folder, text, network)


def _losses_file(output: Path) -> Path:
    """What was measured for a plan, until the model is written."""
    return output.parent / f"{output.name}.losses.json"


def _repair_folder(output: Path) -> Path:
    """Checkpoints of a repair, until the model is written."""
    return output.parent / f"{output.name}.repair"


def _scoring(scores: str | None, calibration: Any, workers: Any, memory: Path | None) -> Any:
    """What errors are scored on; without a wish the best that the data allow."""
    from rankscope.compression.calibration import Activations
    from rankscope.compression.loss_scores import Loss
    from rankscope.compression.scores import Weights

    known: dict[str, Any] = {
        "weights": lambda batches: Weights(),
        "activations": Activations,
        "loss": lambda batches: Loss(batches, workers=workers, memory=memory),
    }
    name = scores or ("weights" if calibration is None else "loss")
    make = choose("--scores", name, known)
    if calibration is None and name != "weights":
        raise RequestError(f"--scores {name} needs inputs: give them with --data or --text.")
    return make(calibration)


def _compressed(network: Any, plan: Any, scoring: Any, batch: Any) -> Any:
    from rankscope.compression.applying import carry_out

    with console.reporting("factorizing") as report:
        return carry_out(network, plan, scores=scoring, example=batch, report=report)


def _repair(
    opened: "Model",
    dense: Any,
    compressed: Any,
    source: tuple[str | None, Path | None],
    minutes: float,
    output: Path,
) -> None:
    """Train the compressed model in place; checkpoints stand beside the output until it is done."""
    import torch

    from rankscope.compression.recovering import TokenModel, repair_model
    from rankscope.compression.training.freed_memory import keep_freed_memory
    from rankscope.networks.batches import TensorData

    keep_freed_memory()
    data, text = source
    settings: dict[str, Any] = {"minutes": minutes, "folder": _repair_folder(output)}
    with console.reporting("repairing") as report:
        settings["progress"] = report
        if text is not None:
            from rankscope.hf import read_tokens

            assert opened.folder is not None, "a text was already cut by its tokenizer"
            batches = read_tokens(opened.folder, text, dense, sequences=REPAIR_SEQUENCES)
            tokens = torch.cat([batch["input_ids"] for batch in batches])
            models = TokenModel(dense), TokenModel(compressed.model)
            repair_model(*models, TensorData(tokens), learning_rate=2e-4, batch_size=4, **settings)
        elif (own := _own_data(opened, data)) is not None:
            repair_model(dense, compressed.model, own.train, learning_rate=2e-3, **settings)
        else:
            _repair_on_inputs(
                dense, compressed.model, _calibration(opened, dense, data, None), settings
            )


def _repair_on_inputs(dense: Any, model: Any, batches: Any, settings: dict[str, Any]) -> None:
    """Train on inputs of a file: to the dense model's predictions, or outputs that are none."""
    import torch

    from rankscope.compression.recovering import TokenModel, gives_logits, repair_model
    from rankscope.compression.repair import Imitation
    from rankscope.networks.batches import TensorData

    first = batches[0]
    if isinstance(first, torch.Tensor):
        inputs, name = torch.cat(batches), None
    elif len(first) == 1:
        (name,) = first
        inputs = torch.cat([batch[name] for batch in batches])
    else:
        raise RequestError(
            f"--repair trains on one tensor of inputs, but the file has {', '.join(first)}; train "
            "in Python with fine_tune."
        )
    if gives_logits(dense, first):
        name = name or dense.main_input_name
        repair_model(
            TokenModel(dense, name), TokenModel(model, name), TensorData(inputs), **settings
        )
        return
    repair_model(dense, model, TensorData(inputs), objective=Imitation(dense), **settings)


def _own_data(opened: "Model", data: str | None) -> "DataSet | None":
    """The labelled set that a built-in network was made for, if the data are that."""
    from rankscope.networks.datasets import load_data_set

    name = opened.data_set
    if name is None or data is None or not (data == name or is_folder(data)):
        return None
    return load_data_set(name, None if data == name else Path(data))


def _write(
    compressed: Any,
    dense: Any,
    output: Path,
    request: "tuple[Model, Any, Any]",
    export: str | None,
) -> Any:
    """Measure the model beside the dense one, then save it, its plan, and what was measured."""
    from rankscope.compression.compressing import report_on
    from rankscope.page.single_file import audit_to_html
    from rankscope.verbs import audit

    opened, scorer, example = request
    # A language model takes its time: one sequence, few times.
    speed: Any = {} if opened.folder is None else {"batch_sizes": (1,), "repeats": 3}
    # All that may be refused comes before the first file.
    measured = report_on(dense, compressed, example=example, scorer=scorer, **speed)
    page = audit_to_html(audit(opened), plan=compressed.plan)
    with tempfile.TemporaryDirectory() as beside:
        exported = _export(compressed, dense, example, export, Path(beside))
        _save(compressed, dense, output, opened, example)
        if exported is not None:
            write_atomically(output / exported.name, exported.read_bytes())
    write_atomically(output / PAGE, page.encode())
    write_atomically(output / REPORT, json.dumps(measured.to_dict(), indent=1).encode())
    _losses_file(output).unlink(missing_ok=True)
    shutil.rmtree(_repair_folder(output), ignore_errors=True)
    return measured


def _save(compressed: Any, dense: Any, output: Path, opened: "Model", example: Any) -> None:
    if opened.folder is not None:
        from rankscope.hf import save_folder

        save_folder(compressed, output, source=opened.folder, example=example)
        return
    from rankscope.compression.saving import save
    from rankscope.networks.catalogue import BUILT_IN

    built_in = opened.name if opened.name in BUILT_IN else None
    save(compressed, output, built_in=built_in, dense=dense, example=example)


def _export(
    compressed: Any, dense: Any, example: Any, kind: str | None, folder: Path
) -> Path | None:
    """The file for other runtimes, checked; None if nobody asked for one."""
    if kind is None:
        return None
    from rankscope.compression.exporting import OnnxExporter, TorchExporter, export

    if example is None:
        raise RequestError("--export needs an example: give inputs with --data or --input.")
    exporter = OnnxExporter() if kind == "onnx" else TorchExporter()
    path = folder / EXPORTED[kind]
    export(compressed.model, example, path, exporter, dense=dense)
    return path


def _scorer(
    opened: "Model", dense: Any, source: tuple[str | None, Path | None], calibration: Any
) -> Any:
    """What is said about both models: the best number that the data allow; None without data.

    Accuracy on the test part of a built-in network's own data set; perplexity on the end of a text;
    likeness to the dense model on other inputs.
    """
    data, text = source
    if data is None and text is None:
        return None
    own = _own_data(opened, data)
    if own is not None:
        from rankscope.lab.data.scoring import accuracy

        batch = own.test.batches(len(own.test))[0]
        labels = batch.targets
        assert labels is not None, "data sets of classifiers have labels"
        return lambda network: {"accuracy": accuracy(network, batch.inputs, labels)}
    from rankscope.compression.evaluating import score
    from rankscope.compression.evaluation_tasks import Text

    if text is None:
        task: Any = _joined(calibration)
    else:
        from rankscope.hf import read_numbers

        assert opened.folder is not None, "a text was already cut by its tokenizer"
        numbers = read_numbers(opened.folder, text, dense, last=SCORED_TOKENS)
        if len(numbers) < 2:
            return None
        task = Text(numbers)
    return lambda network: score(network, task, dense)


def _joined(batches: Any) -> Any:
    """All samples of batches, as a task without labels."""
    import torch

    from rankscope.compression.evaluation_tasks import Inputs

    if isinstance(batches[0], torch.Tensor):
        return Inputs(torch.cat(batches))
    return Inputs({name: torch.cat([part[name] for part in batches]) for name in batches[0]})


def _read_unit(text: str) -> Any:
    from rankscope.compression.plan import Unit

    return choose("--by", text, {str(unit): unit for unit in Unit})


def _read_also(text: str | None) -> Any:
    from rankscope.compression.plan import Budget

    if text is None:
        return None
    unit, _, share = text.partition("=")
    try:
        return Budget(float(share), _read_unit(unit))
    except ValueError as error:
        raise RequestError(
            f"--also takes a unit and a share, like latency=0.5, got {text!r}."
        ) from error


def _read_formats(text: str | None) -> Any:
    from rankscope.factorize.formats.catalogue import FORMATS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise RequestError(
                f"--formats takes some of {', '.join(FORMATS)}, with commas between them, "
                f"got {name!r}."
            )
    return [FORMATS[name] for name in dict.fromkeys(names)]


def _read_bits(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(bits) for bits in text.split(",")]
    except ValueError as error:
        raise RequestError(f"--bits takes some of 32, 8, 4, like 32,8, got {text!r}.") from error


def _print(plan: Any) -> None:
    rows = [("name", "shape", "format", "ranks", "bits", "kept", "of", "error", "reason")]
    rows += [
        (
            row.name or "(model)",
            " x ".join(map(str, row.shape)),
            row.format or "dense",
            ",".join(map(str, row.ranks)),
            str(row.bits),
            f"{row.kept:,}",
            f"{row.dense:,}",
            f"{row.error:.3g}" if row.format else "",
            row.reason,
        )
        for row in plan.rows
    ]
    width = console.columns()
    if width is not None and width < WIDE:
        # The reasons would stand a word to a line: each goes below its row.
        for row in rows[1:]:
            print(f"{row[0]}: {row[2]} {row[3]}".rstrip(), f"{row[5]} of {row[6]}", sep=", ")
            console.print_text(row[8], indent="  ")
    else:
        console.print_columns(rows, numbers=(4, 5, 6, 7))
    _print_totals(plan)
    for note in plan.notes:
        console.print_text(note)


def _tell(plan: Any, measured: Any, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        console.print_json(plan.to_dict())
        return
    _print(plan)
    if measured is not None:
        _print_measured(measured)
        print(output)


def _print_measured(report: Any) -> None:
    rows = [("measured", "dense", "compressed", "ratio")]
    for latency in report.latencies:
        dense, kept = latency.dense_seconds, latency.compressed_seconds
        name = f"latency at batch {latency.batch_size}, {latency.threads} threads"
        rows.append((name, f"{dense:.4g} s", f"{kept:.4g} s", f"{latency.ratio:.2%}"))
    rows += [(one.name, *_shown(one), "") for one in report.scores]
    if len(rows) > 1:
        console.print_columns(rows, numbers=(1, 2, 3))


def _shown(score: Any) -> tuple[str, str]:
    form = ".2%" if score.name in ("accuracy", "agreement") else ".4g"
    return format(score.dense, form), format(score.compressed, form)


def _warn(report: Any, context: typer.Context, repair: float | None) -> None:
    """Say loudly that a model is of no use as it is, with the command that mends it."""
    for score in report.scores:
        if score.has_collapsed:
            dense, after = _shown(score)
            minutes = 20.0 if repair is None else 4 * repair
            again = as_command(context, repair=f"{minutes:g}", as_json=False)
            console.print_warning(
                f"The model has collapsed: {score.name} {after}, {dense} before. Train it to give "
                f"what the original gives{'' if repair is None else ' for longer'}: {again}"
            )
    if not report.scores and repair is None:
        console.print_warning(
            "Nobody knows what the model is still worth: give inputs with --data or --text, and it "
            "is scored beside the dense one."
        )


def _print_totals(plan: Any) -> None:
    print("\nRatio is kept / dense: what stays of the whole model, in each unit.")
    rows = [("", "dense", "kept", "ratio")]
    units = {"parameters": "parameters", "bytes": "bytes", "flops": "flops", "seconds": "latency"}
    for name, spelled in units.items():
        dense, kept = getattr(plan.dense, name), getattr(plan.kept, name)
        if dense:
            shown = (
                (f"{dense:.4g} s", f"{kept:.4g} s")
                if name == "seconds"
                else (f"{dense:,}", f"{kept:,}")
            )
            rows.append((spelled, *shown, f"{kept / dense:.2%}"))
    console.print_columns(rows, numbers=(1, 2, 3))
