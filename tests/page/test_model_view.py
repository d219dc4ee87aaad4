"""What the model view answers, on a small model with a folder of its own."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.page.conftest import REQUEST, Served, over, plan, serve_in_thread, until
from torch import nn

from rankscope import extras
from rankscope.compression import DEFAULT_FORMATS, PlanSettings, Weights, list_candidates
from rankscope.factorize import STORED_FORMATS
from rankscope.page import ModelState, Session
from rankscope.page.model_view import FORMATS
from rankscope.page.model_work import draw_layer
from rankscope.progress import ignore

UP = "model.layers.1.mlp.up_proj"


@pytest.fixture(scope="module")
def planned(llama: Served) -> Served:
    until(lambda: llama.ask("/model")["candidates"])
    return llama


def row_of(solved: Any, name: str) -> list[Any]:
    (row,) = [row for row in solved["rows"] if row[0] == name]
    return list(row)


@pytest.mark.slow
def test_shapes_are_there_at_once_and_weights_follow(llama: Served) -> None:
    first = llama.ask("/model")
    assert first["name"] == "llama"
    names = [tensor["name"] for tensor in first["tensors"]]
    assert f"{UP}.weight" in names
    done = until(lambda: (m := llama.ask("/model"))["is_complete"] and m)
    (low,) = [tensor for tensor in done["tensors"] if tensor["name"] == f"{UP}.weight"]
    assert low["matrices"][0][4] < 3  # its effective rank
    assert done["verdict"]["is_final"]
    events, _ = llama.session.events.after(0)
    assert {event["tensor"]["name"] for event in events if event["kind"] == "tensor"} >= {
        f"{UP}.weight"
    }


@pytest.mark.slow
def test_a_plan_keeps_its_budget_and_finds_the_low_rank(planned: Served) -> None:
    solved = plan(planned)
    assert solved["is_proved"]
    assert solved["kept"]["parameters"] <= 0.7 * solved["dense"]["parameters"]
    _, format_name, ranks, parameters, error, _ = row_of(solved, UP)
    assert (format_name, error < 1e-3) == ("svd", True)
    assert ranks[0] <= 4
    assert parameters < 64 * 32


@pytest.mark.slow
def test_the_quick_plan_is_never_better_than_the_exact_one(planned: Served) -> None:
    for keep in (0.4, 0.6, 0.8, 0.95):
        quick, exact = plan(planned, "quick", keep=keep), plan(planned, keep=keep)
        assert exact["score"] <= quick["score"] + 1e-12
        assert quick["score"] - quick["gap"] <= exact["score"] + 1e-12
        for solved in (quick, exact):
            assert solved["kept"]["parameters"] <= keep * solved["dense"]["parameters"]


def test_equal_questions_are_answered_once(planned: Served) -> None:
    """Those who ask while the answer is computed wait for it; a refusal is not kept."""
    begun, asked = planned.session.jobs.start, []

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return begun(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned.session.jobs, "start", counted)
        with ThreadPoolExecutor(8) as readers:
            found = list(readers.map(lambda _: plan(planned, "quick", keep=0.7341), range(16)))
        assert len(asked) == 1
        assert all(one == found[0] for one in found)
        for _ in range(2):
            with pytest.raises(ValueError, match="above 0"):
                plan(planned, "quick", keep=-1.0)
        assert len(asked) == 3


@pytest.mark.parametrize("method", ["quick", "exact"])
def test_a_second_budget_is_kept_too(planned: Served, method: str) -> None:
    solved = plan(planned, method, also={"by": "flops", "keep": 0.6})
    assert solved["kept"]["parameters"] <= 0.7 * solved["dense"]["parameters"]
    assert solved["kept"]["flops"] <= 0.6 * solved["dense"]["flops"]


def test_a_pin_and_a_forbidden_format_are_obeyed(planned: Served) -> None:
    dense = plan(planned, pinned={UP: 0})
    assert row_of(dense, UP)[1] is None
    site = planned.ask("/site", {"name": UP})
    place = next(n for n, one in enumerate(site["candidates"]) if one[0] == "svd")
    pinned = plan(planned, pinned={UP: place})
    assert row_of(pinned, UP)[5] == place
    free = plan(planned, keep=1.0, forbidden=["svd", "tucker", "tensor-train"])
    assert all(row[1] is None for row in free["rows"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keep": 0.0}, "above 0 and at most 1"),
        ({"keep": 0.0001}, "the smallest that can be reached"),
        ({"keep": 1e300}, "above 0 and at most 1"),
        ({"pinned": {UP: 9999}}, "is pinned to number 9999"),
        ({"also": {"by": "parameters", "keep": 0.5}}, "in different units"),
        ({"by": "latency"}, "one of parameters, bytes, flops"),
    ],
)
def test_a_plan_that_cannot_be_says_why(
    planned: Served, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan(planned, **changes)


def test_a_layer_has_spectra_a_diagram_in_each_form_and_code_that_runs(planned: Served) -> None:
    until(lambda: planned.ask("/model")["is_complete"])
    spectra = planned.ask("/spectrum", {"name": f"{UP}.weight"})
    matrix = spectra["matrices"][0]
    assert len(matrix["singular_values"]) == 32
    assert len(matrix["random"]) == 64
    layer = {"kind": "Linear", "shape": [64, 32]}
    dense = planned.ask("/layer", {**layer, "format": None, "ranks": []})
    factored = planned.ask("/layer", {**layer, "format": "svd", "ranks": [2]})
    assert dense["cost"]["parameters"] == 64 * 32
    assert factored["cost"]["parameters"] == 2 * (64 + 32)
    for drawn in (dense, factored):
        assert "<svg" in drawn["svg"]
        assert "style=" not in drawn["svg"]
        compile(drawn["code"], "layer.py", "exec")
    with pytest.raises(ValueError, match="at least 2 sizes, got 1"):
        planned.ask("/layer", {**layer, "shape": [3], "format": None, "ranks": []})
    with pytest.raises(ValueError, match="There is no tensor"):
        planned.ask("/spectrum", {"name": "../../etc/passwd"})


def test_convolutions_are_drawn_in_every_format_of_their_candidates() -> None:
    assert FORMATS == DEFAULT_FORMATS
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.Conv1d(8, 8, 3))
    formats = tuple(STORED_FORMATS[name] for name in FORMATS)
    table = list_candidates(model, PlanSettings(formats, Weights(), num_steps=3), ignore)
    drawn = set()
    for options in table.site_candidates:
        for one in {each.format: each for each in options.candidates}.values():
            layer = {"kind": options.site.kind, "shape": options.site.stored_shape}
            answer = draw_layer({**layer, "format": one.format, "ranks": one.ranks}, ignore, None)
            assert "<svg" in str(answer["svg"])
            drawn.add(one.format)
    assert drawn == {None, *FORMATS}


@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<svg"), (".pdf", b"%PDF"), (".tikz", b"%")]
)
def test_figures_are_given_in_every_form(planned: Served, ending: str, start: bytes) -> None:
    layer = {"kind": "Linear", "shape": [64, 32], "format": "svd", "ranks": [3], "ending": ending}
    status, content, headers = planned.send("/api/layer/figure", json.dumps(layer).encode())
    assert status == 200
    assert content.startswith(start)
    assert headers["content-disposition"] == f'attachment; filename="layer{ending}"'


CELL = {"tensor": f"{UP}.weight", "matrix": 0, "site": UP}
HEAT: dict[str, Any] = {
    "columns": ["0", "1"],
    "rows": [{"name": "<b>up & $x$</b>", "cells": [None, CELL]}],
    "metric": "effective",
    "request": None,
}


@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<svg"), (".pdf", b"%PDF"), (".tikz", b"%")]
)
def test_the_map_and_a_spectrum_are_figures_with_the_numbers_of_the_server(
    planned: Served, ending: str, start: bytes
) -> None:
    until(lambda: planned.ask("/model")["is_complete"])
    spectrum = {"name": f"{UP}.weight", "matrix": 0, "rank": 2, "ending": ending}
    plans = {**HEAT, "metric": "plan", "request": REQUEST}
    bodies = {"spectrum": spectrum, "heat": {**HEAT, "ending": ending}}
    for name, body in (*bodies.items(), ("heat", {**plans, "ending": ending})):
        status, content, _ = planned.send(f"/api/figure/{name}", json.dumps(body).encode())
        assert status == 200
        assert content.startswith(start)
        if ending == ".svg":
            assert b"<b>" not in content
        if (name, ending) == ("heat", ".svg") and body["metric"] == "effective":
            rank = planned.session.state(ModelState).row(f"{UP}.weight").matrices[0].effective_rank
            assert f": {100 * rank / 32:.0f} %".encode() in content


def test_a_figure_of_what_is_not_there_is_refused(planned: Served) -> None:
    with pytest.raises(ValueError, match="need the request"):
        planned.ask("/figure/heat", {**HEAT, "metric": "plan", "ending": ".svg"})
    rows = [{"name": "x", "cells": [{**CELL, "tensor": "gone"}]}]
    with pytest.raises(ValueError, match="There is no tensor"):
        planned.ask("/figure/heat", {**HEAT, "rows": rows, "ending": ".svg"})
    body = {"name": f"{UP}.weight", "matrix": 9, "rank": None, "ending": ".svg"}
    with pytest.raises(ValueError, match="has 1 matrices"):
        planned.ask("/figure/spectrum", body)


def test_a_saved_model_opens_again_and_only_the_output_folder_has_grown(
    planned: Served, folder: Path
) -> None:
    import rankscope.hf  # noqa: F401 - registers the loader

    transformers: Any = extras.transformers()
    before = {path for path in folder.rglob("*") if "output" not in path.parts}
    job = planned.ask("/save", {**REQUEST, "name": "smaller"})["job"]
    done = over(planned, job["number"])
    assert (done["state"], done["error"]) == ("done", None)
    result = planned.ask("/save/result", {"number": job["number"]})["result"]
    assert result["folder"] == "smaller"
    target = folder / "output" / "smaller"
    model = transformers.AutoModelForCausalLM.from_pretrained(target)
    dense = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama")
    count = sum(weight.numel() for weight in model.parameters())
    assert count == result["kept"]["parameters"]
    assert count <= 0.7 * sum(weight.numel() for weight in dense.parameters())
    assert before == {path for path in folder.rglob("*") if "output" not in path.parts}


@pytest.mark.parametrize("name", ["../escape", "/tmp/escape", "a/b", ""])
def test_a_model_is_saved_in_the_output_folder_or_not_at_all(planned: Served, name: str) -> None:
    with pytest.raises(ValueError, match="one word without slashes"):
        planned.ask("/save", {**REQUEST, "name": name})


def test_candidates_are_computed_once(planned: Served, folder: Path) -> None:
    (path,) = (folder / "output" / "candidates").glob("*.json")
    written = path.stat().st_mtime_ns
    (job,) = [job for job in planned.session.jobs.all() if job.kind == "listing candidates"]
    assert not job.result["was_cached"]
    planned.ask("/candidates/retry", {})
    again = until(
        lambda: [
            job
            for job in planned.session.jobs.all()
            if job.kind == "listing candidates" and job.is_over
        ][1:]
    )
    assert again[0].result["was_cached"]
    assert path.stat().st_mtime_ns == written
    # A damaged file is no table: it is computed again, whatever stands in it.
    path.write_bytes(path.read_bytes()[:100])


def test_a_folder_that_is_not_there_is_said_on_the_page(tmp_path: Path) -> None:
    session = Session(str(tmp_path / "gone"), tmp_path / "output")
    for served in serve_in_thread(session):
        found = until(
            lambda: (m := served.ask("/model"))["problems"].get("audit") and m  # noqa: B023
        )
        assert "gone" in found["problems"]["sketch"]
        assert found["tensors"] == []
        with pytest.raises(ValueError, match="There are no candidates"):
            plan(served)
    assert not (tmp_path / "output").exists()
