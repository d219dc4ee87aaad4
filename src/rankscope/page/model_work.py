"""What worker processes do for the model view: audit, list candidates, solve, draw, save.

Every function takes plain arguments, a report of progress and a callback for parts; see `jobs`.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rankscope.errors import RankscopeError, RequestError
from rankscope.models import Model, open_model
from rankscope.page.loss_work import TABLE, read_source, scoring_of_table
from rankscope.progress import Progress, Report

EMBEDDED = "transformer"  # opened where no model was named
REST_SECONDS, SAVE_SECONDS = 3.0, 30.0  # for the proof that a plan is best
WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.json")


def audit(arguments: Mapping[str, Any], report: Report, part: Any) -> Any:
    """The audit, its rows one by one on the way."""
    from rankscope.auditing.auditor import audit as audit_opened

    word = arguments["model"]
    opened = open_model(word or EMBEDDED)
    opened.require_for("audit")
    # Without a word the audit opens the embedded model itself, and its commands name it.
    model = opened.audited if word else None
    return audit_opened(model, name=word, report=report, on_row=part)


# --- Candidates: computed once, kept in the output folder under the hash of what they depend on ---


def candidates(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """The table of candidates: from the file of an earlier run, or computed and written there."""
    from rankscope.compression.candidate_file import write_table
    from rankscope.compression.planning import list_candidates as compute
    from rankscope.compression.scores import Weights

    opened = open_model(arguments["model"] or EMBEDDED)
    opened.require_for("compress")
    report(Progress("reading the weights", 0, 1))
    folder = Path(arguments["output"]) / "candidates"
    name = content_hash(opened)
    # With measured losses if there are any, the newest first.
    measured = sorted(folder.glob(f"{name}-*/{TABLE}"), key=lambda one: -one.stat().st_mtime)
    for path in (*measured, folder / f"{name}.json"):
        if _readable_table(path):
            return described(opened, path, was_cached=True)
    table = compute(opened.module, plan_settings(opened, Weights()), report)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(table, path)
    return described(opened, path, was_cached=False)


def plan_settings(opened: Model, scoring: Any) -> Any:
    """What the candidates of the page are made from."""
    from rankscope.compression.planning import DEFAULT_FORMATS, PlanSettings
    from rankscope.factorize.formats.catalogue import STORED_FORMATS

    formats = tuple(STORED_FORMATS[name] for name in DEFAULT_FORMATS)
    example = opened.example_tensors
    return PlanSettings(formats=formats, scoring=scoring, example=example, skips_dear=True)


def described(opened: Model, path: Path, *, was_cached: bool) -> dict[str, object]:
    """What the page is told of a table in a file."""
    summary = _summary(str(path))
    measured = read_source(path) if path.name == TABLE else {"source": None, "loss": None}
    tensors = _named_otherwise(opened)
    return {
        "path": str(path),
        "was_cached": was_cached,
        **summary,
        **measured,
        "tensors": tensors,
    }


def _named_otherwise(opened: Model) -> dict[str, str]:
    """Sites by the tensors that an audit names otherwise: found by their numbers, plain or turned.

    Files of Hugging Face have the names of their modules, up to what stands before them.
    """
    import torch

    from rankscope.compression.sites import read_sites

    if opened.folder is not None or isinstance(opened.audited, torch.nn.Module):
        return {}
    source, sites = opened.weights, read_sites(opened.module).sites
    found: dict[str, str] = {}
    for entry in () if source is None else source.entries:
        if source is None or len(entry.shape) < 2:
            continue
        tensor: Any = source.read(entry.name)
        for site in sites:
            if site.weight.numel() == tensor.numel() and any(
                torch.equal(site.weight.flatten(), form.flatten()) for form in (tensor, tensor.mT)
            ):
                found[entry.name] = site.name
                break
    return found


def content_hash(opened: Model) -> str:
    """SHA-256 of everything that candidates depend on: the weights, this program, its settings."""
    hashed = hashlib.sha256(f"candidates 1 {version('rankscope')}".encode())
    if opened.folder is not None:
        files = sorted({path for kind in WEIGHT_FILES for path in opened.folder.glob(kind)})
        for path in files:
            with path.open("rb") as file:
                hashed.update(f"\n{path.name} ".encode())
                hashed.update(hashlib.file_digest(file, "sha256").digest())
        return hashed.hexdigest()
    for name, tensor in opened.module.state_dict().items():
        hashed.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        hashed.update(tensor.detach().cpu().contiguous().flatten().view(_bytes()).numpy().data)
    return hashed.hexdigest()


def _bytes() -> Any:
    import torch

    return torch.uint8


def _readable_table(path: Path) -> bool:
    """Whether an earlier run left a whole table; a damaged one is computed again."""
    try:
        _table(str(path))
        if path.name == TABLE:
            read_source(path)
    except RankscopeError:
        return False
    return True


@lru_cache(maxsize=2)
def _solver(path: str) -> Any:
    from rankscope.compression.candidate_file import read_table
    from rankscope.compression.choosing import TableSolver

    return TableSolver(read_table(Path(path)))


def _table(path: str) -> Any:
    return _solver(path).table


def _summary(path: str) -> dict[str, object]:
    table = _table(path)
    smallest = table.dense.parameters - sum(
        options.dense.costs.parameters - min(one.costs.parameters for one in options.candidates)
        for options in table.site_candidates
    )
    formats = dict.fromkeys(
        one.format for options in table.site_candidates for one in options.candidates if one.format
    )
    return {
        "sites": [options.site.name for options in table.site_candidates],
        "formats": list(formats),
        "smallest_keep": smallest / table.dense.parameters,
        "scoring": table.scoring,
        "has_flops": table.dense.flops > 0,
    }


# --- A plan for the slider ------------------------------------------------------------------------


def solve(arguments: Mapping[str, Any], report: Report, part: Any) -> bytes:
    """The plan for a budget, as JSON: totals, and a row for every site."""
    from rankscope.page.shell import encoded

    table = _table(arguments["path"])
    solved = _solved(arguments, REST_SECONDS)
    rows = [
        [options.site.name, one.format, one.ranks, one.costs.parameters, one.error, place]
        for options, place, one in zip(
            table.site_candidates, solved.picks, solved.candidates, strict=True
        )
    ]
    mean_square = solved.score / max(1, len(solved.picks))
    return encoded(
        {
            "dense": _costs(table.dense),
            "kept": _costs(solved.kept),
            "score": solved.score,
            "error": mean_square**0.5,
            "gap": solved.gap,
            "is_proved": solved.gap == 0,
            "method": "quick" if arguments["is_quick"] else "exact",
            "rows": rows,
        }
    )


def _costs(costs: Any) -> dict[str, int]:
    return {"parameters": costs.parameters, "bytes": costs.bytes, "flops": costs.flops}


def _solved(arguments: Mapping[str, Any], max_seconds: float) -> Any:
    from rankscope.compression.choosing import Restriction, check_budget
    from rankscope.compression.plan import Budget, Unit

    solver, request = _solver(arguments["path"]), arguments["request"]
    also = request["also"]
    second = None if also is None else Budget(also["keep"], Unit(also["by"]))
    budget = Budget(request["keep"], Unit(request["by"]), second)
    check_budget(budget, has_example=solver.table.dense.flops > 0)
    restriction = Restriction(request["pinned"], tuple(request["forbidden"]))
    return solver.solve(
        budget,
        restriction=restriction,
        is_quick=arguments.get("is_quick", False),
        max_seconds=max_seconds,
    )


# --- One layer: candidates of its weight, and its diagram dense and factored ----------------------


def site(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """All candidates of one site, by format and size."""
    for options in _table(arguments["path"]).site_candidates:
        if options.site.name == arguments["name"]:
            return {
                "kind": options.site.kind,
                "shape": list(options.site.stored_shape),
                "also": list(options.site.also),
                "candidates": [
                    [one.format, list(one.ranks), one.costs.parameters, one.costs.flops, one.error]
                    for one in options.candidates
                ],
                "refusals": list(options.refusals),
            }
    return {"kind": None, "shape": [], "also": [], "candidates": [], "refusals": []}


def spectrum(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """One tensor with its spectra; here, because those of random matrices need torch."""
    from rankscope.page.model_data import spectrum_data

    return spectrum_data(arguments["row"])


def draw_layer(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """A weight dense or in a format: picture, equation, cost and code."""
    return dict(
        _drawn(
            arguments["kind"],
            tuple(arguments["shape"]),
            arguments["format"],
            tuple(arguments["ranks"]),
        )
    )


def layer_diagram(
    kind: str, shape: tuple[int, ...], format_name: str | None, ranks: tuple[int, ...]
) -> Any:
    """What a layer does with one input, as a diagram with the cores of its weight."""
    from rankscope.factorize.formats.catalogue import STORED_FORMATS
    from rankscope.factorize.formats.format import WeightShape, Window
    from rankscope.factorize.formats.plain import DENSE

    format = DENSE if format_name is None else STORED_FORMATS[format_name]
    out_size, in_size, *kernel = shape
    weight = WeightShape(out_size, in_size, tuple(kernel))
    if kind == "Embedding":
        return format.row_chain(weight, ranks)
    image = tuple(max(16, size) for size in kernel)
    ones = (1,) * len(kernel)
    window = Window(stride=ones, padding=(0,) * len(kernel), dilation=ones)
    return format.chain(weight, ranks, window, image)


@lru_cache(maxsize=256)
def _drawn(
    kind: str, shape: tuple[int, ...], format_name: str | None, ranks: tuple[int, ...]
) -> Mapping[str, object]:
    from rankscope.diagrams.cost import cost
    from rankscope.diagrams.program import einsum_program
    from rankscope.diagrams.source import to_source
    from rankscope.drawing.layout.placement import View
    from rankscope.drawing.page import compose
    from rankscope.drawing.svg import to_svg

    diagram = layer_diagram(kind, shape, format_name, ranks)
    counted = cost(diagram).to_dict()
    prefix = "dense-" if format_name is None else "factored-"
    return {
        "svg": to_svg(compose(diagram, view=View(show_sizes=True)), prefix=prefix),
        "equation": str(einsum_program(diagram)),
        "cost": {key: counted[key] for key in ("parameters", "flops", "largest_intermediate")},
        "code": to_source(diagram),
    }


def figure(arguments: Mapping[str, Any], report: Report, part: Any) -> bytes:
    """The diagram of a layer as a file: .svg, .pdf or .tikz."""
    from rankscope.drawing.drawing import WRITERS, PictureSource
    from rankscope.drawing.layout.placement import Hints, View
    from rankscope.drawing.themes import LIGHT

    diagram = layer_diagram(
        arguments["kind"], tuple(arguments["shape"]), arguments["format"], tuple(arguments["ranks"])
    )
    picture = PictureSource(diagram, LIGHT, View(show_sizes=True), Hints(), steps=False)
    return WRITERS[arguments["ending"]](picture)


# --- Saving ---------------------------------------------------------------------------------------


def save(arguments: Mapping[str, Any], report: Report, part: Any) -> dict[str, object]:
    """Carry out the plan of a request, and write the model into the folder it names."""
    from rankscope.files import write_atomically

    opened = open_model(arguments["model"] or EMBEDDED)
    path = Path(arguments["path"])
    report(Progress("opening the model", 0, 1))
    known = path.stem if path.name != TABLE else path.parent.name
    if not known.startswith(content_hash(opened)):
        raise RequestError(
            "The model has changed since its candidates were listed: open it again, or press "
            "Try again. Nothing was written."
        )
    solved = _solved(arguments, SAVE_SECONDS)
    compressed = _carried_out(opened, solved, path, report)
    target = Path(arguments["folder"])
    target.parent.mkdir(parents=True, exist_ok=True)
    report(Progress("writing", 0, 1))
    loader = _write_model(opened, compressed, target)
    request = {**arguments["request"], "model": arguments["model"]}
    write_atomically(target / "request.json", json.dumps(request, indent=1).encode())
    report(Progress("writing", 1, 1))
    return {"folder": target.name, "loader": loader, "kept": _costs(compressed.plan.kept)}


def _carried_out(opened: Model, solved: Any, path: Path, report: Report) -> Any:
    from rankscope.compression.applying import carry_out
    from rankscope.compression.sites import Uncompressed

    scoring = None
    if solved.plan.scoring == "loss":
        left = [row.name for row in solved.table.entries if isinstance(row, Uncompressed)]
        scoring = scoring_of_table(opened, path, left, report)
    example = opened.example_tensors
    return carry_out(opened.module, solved.plan, scores=scoring, example=example, report=report)


def _write_model(opened: Model, compressed: Any, target: Path) -> str:
    """Write it, and say the lines that open it again."""
    dense, example = opened.module, opened.example_tensors
    if opened.folder is not None:
        from rankscope.hf import save_folder

        save_folder(compressed, target, source=opened.folder, example=example)
        names = getattr(getattr(dense, "config", None), "architectures", None) or [""]
        kind = "AutoModelForCausalLM" if str(names[0]).endswith("ForCausalLM") else "AutoModel"
        return (
            f"import rankscope.hf\nfrom transformers import {kind}\n"
            f"model = {kind}.from_pretrained({str(target)!r})"
        )
    from rankscope.compression.saving import save as save_network
    from rankscope.networks.catalogue import BUILT_IN

    built_in = opened.name if opened.name in BUILT_IN else None
    save_network(compressed, target, built_in=built_in, dense=dense, example=example)
    base = ", model" if built_in is None else ""
    return f"import rankscope\nmodel = rankscope.load({str(target)!r}{base})"
