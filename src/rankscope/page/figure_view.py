"""Figures of the model view as files: the map of ranks, of the plan's ranks, and a spectrum.

The page says what stands where; every number comes from here.
"""

import json
from collections.abc import Mapping
from typing import Any

from rankscope.auditing.tensors import MatrixRow
from rankscope.errors import RequestError
from rankscope.page.endpoints import Body, Download, Endpoint
from rankscope.page.model_view import ENDINGS, REQUEST, ModelState, quick, solve_plan
from rankscope.page.session import Session
from rankscope.progress import Report
from rankscope.strict_json import Choice, Integer, ListOf, Object, Optional, Text

WORK = "rankscope.page.figure_view"
METRICS = {
    "effective": "effective rank",
    "stable": "stable rank",
    "energy": "rank that holds 90 % of the squares",
    "plan": "rank that the plan keeps",
}


def export_heat(session: Session, body: Body) -> Download:
    """The map of ranks as a file."""
    state = session.state(ModelState)
    metric, title = body["metric"], METRICS[body["metric"]]
    planned: Mapping[str, tuple[int, ...] | None] = {}
    if metric == "plan":
        if body["request"] is None:
            raise RequestError("The ranks of a plan need the request that it was solved for.")
        plan = json.loads(solve_plan(session, {**body["request"], "method": "quick"}))
        planned = {name: None if form is None else ranks for name, form, ranks, *_ in plan["rows"]}
        title += f" at {100 * body['request']['keep']:g} % of the {body['request']['by']}"
    rows = [
        [row["name"], [_share(state, cell, metric, planned) for cell in row["cells"]]]
        for row in body["rows"]
    ]
    shown = str(state.to_dict()["name"])
    arguments = {
        "title": f"{shown}: {title}",
        "columns": body["columns"],
        "rows": rows,
        "ending": body["ending"],
    }
    content: bytes = quick(session, "draw_heat", "draw", arguments, module=WORK)
    return Download(f"{metric}-ranks{body['ending']}", content, ENDINGS[body["ending"]])


def _share(
    state: ModelState, cell: Mapping[str, Any] | None, metric: str, planned: Mapping[str, Any]
) -> float | None:
    matrices = () if cell is None else state.row(cell["tensor"]).matrices
    if cell is None or cell["matrix"] >= len(matrices):
        return None
    matrix = matrices[cell["matrix"]]
    rank = float(matrix.num_values)
    if metric != "plan":
        rank = _rank(matrix, metric)
    elif cell["site"] not in planned:
        return None
    elif planned[cell["site"]] is not None:
        rank = min(rank, float(planned[cell["site"]][0]))
    return float(rank / max(1, matrix.num_values))


def _rank(matrix: MatrixRow, metric: str) -> float:
    if metric == "energy":
        return float(matrix.rank_at.get("90") or 0)
    return float(matrix.stable_rank if metric == "stable" else matrix.effective_rank)


def export_spectrum(session: Session, body: Body) -> Download:
    """The spectrum of a matrix as a file, with the cut of a rank."""
    row = session.state(ModelState).row(body["name"])
    if body["matrix"] >= len(row.matrices):
        raise RequestError(f"{row.name[:100]} has {len(row.matrices)} matrices that were read.")
    arguments = {"row": row, **{key: body[key] for key in ("matrix", "rank", "ending")}}
    content: bytes = quick(session, "draw_spectrum", "draw", arguments, module=WORK)
    return Download(f"spectrum{body['ending']}", content, ENDINGS[body["ending"]])


# --- In a worker ----------------------------------------------------------------------------------


def draw_heat(arguments: Mapping[str, Any], report: Report, part: Any) -> bytes:
    """The map of ranks as a file."""
    from rankscope.page.figures import HeatRow, heat_scene, write_figure

    rows = [HeatRow(name, tuple(shares)) for name, shares in arguments["rows"]]
    scene = heat_scene(arguments["title"], arguments["columns"], rows)
    return write_figure(scene, arguments["ending"])


def draw_spectrum(arguments: Mapping[str, Any], report: Report, part: Any) -> bytes:
    """A spectrum as a file."""
    from rankscope.page.figures import spectrum_scene, write_figure
    from rankscope.page.model_data import spectrum_data

    row = arguments["row"]
    matrices: Any = spectrum_data(row)["matrices"]
    matrix = matrices[arguments["matrix"]]
    title = f"{row.name}, {matrix['name']}" if matrix["name"] else row.name
    scene = spectrum_scene(title, matrix, arguments["rank"])
    return write_figure(scene, arguments["ending"])


CELL = Object({"tensor": Text(), "matrix": Integer(0, 10_000), "site": Optional(Text())})
ROW = Object({"name": Text(), "cells": ListOf(Optional(CELL), at_most=1000)})
ENDING = Choice(tuple(ENDINGS))
ENDPOINTS = (
    Endpoint(
        "/figure/heat",
        "The map of ranks, or of a plan's ranks, as a file.",
        export_heat,
        Object(
            {
                "metric": Choice(tuple(METRICS)),
                "request": Optional(REQUEST),
                "columns": ListOf(Text(), at_most=1000),
                "rows": ListOf(ROW, at_most=1000),
                "ending": ENDING,
            }
        ),
    ),
    Endpoint(
        "/figure/spectrum",
        "A spectrum as a file.",
        export_spectrum,
        Object(
            {
                "name": Text(),
                "matrix": Integer(0, 10_000),
                "rank": Optional(Integer(1, 10**9)),
                "ending": ENDING,
            }
        ),
    ),
)
