"""An audit as one page: no server, no network, no other file."""

from html import escape
from importlib.metadata import version

from rankscope.auditing.audit import Audit
from rankscope.auditing.findings import Severity
from rankscope.auditing.law import parameters_in_blocks
from rankscope.auditing.plane import place_model, to_svg
from rankscope.report.filling import asset, embedded_json, fill
from rankscope.report.findings_list import findings_list
from rankscope.report.heat_map import heat_map
from rankscope.report.layer_data import layer_data
from rankscope.report.layer_diagrams import LayerDiagrams, layer_diagrams
from rankscope.report.layer_table import layer_table
from rankscope.report.parameters_bar import parameters_bar
from rankscope.report.style import diagram_colors, page_colors
from rankscope.report.wording import model_name, model_sentence, spoken_count

WORDS = {
    "warning": ("warning", "warnings"),
    "advice": ("piece of advice", "pieces of advice"),
    "note": ("note", "notes"),
}
PLANE_SIZE = (520.0, 320.0)
SCRIPTS = ("spectrum.js", "panel.js", "table.js", "page.js")


def audit_to_html(audit: Audit) -> str:
    """Write the page: findings, sizes, heat map, table, and on a click a spectrum and diagram.

    It opens from a folder, in light and dark, in narrow windows and on paper.
    """
    diagrams = layer_diagrams(audit) if audit.tensors else LayerDiagrams()
    texts = {
        "title": escape(model_name(audit)),
        "source": escape(audit.source),
        "sentence": escape(model_sentence(audit)),
        "total": escape(f"{spoken_count(audit.parameters.total)} parameters"),
        "summary": escape(_summary(audit)),
        "findings": findings_list(audit.findings),
        "parameters": parameters_bar(audit.parameters),
        "plane": _plane(audit),
        "layers": _layers(audit),
        "diagrams": "\n".join(
            f'<template data-diagram="{key}">{picture}</template>'
            for key, picture in diagrams.pictures
        ),
        "data": embedded_json(layer_data(audit, diagrams)),
        "style": fill(asset("audit.css"), {"colors": page_colors(), "diagrams": diagram_colors()}),
        "script": "\n".join(asset(name) for name in SCRIPTS),
        "version": escape(version("rankscope")),
    }
    return fill(asset("audit.html"), texts)


def _summary(audit: Audit) -> str:
    """How many findings of each weight, the weightiest first."""
    counts = [
        (sum(finding.severity is severity for finding in audit.findings), severity.name.lower())
        for severity in sorted(Severity, reverse=True)
    ]
    results = [f"{count} {WORDS[name][count > 1]}" for count, name in counts if count]
    return ", ".join(results) or "no findings"


def _plane(audit: Audit) -> str:
    if audit.configuration is None:
        return ""
    placed = place_model(audit.configuration)
    if placed is None:
        return ""
    size = spoken_count(parameters_in_blocks(audit.configuration))
    caption = escape(f"With {size} parameters in blocks {placed.caption}")
    svg = to_svg(placed.plane, PLANE_SIZE, placed.description)
    figure = f'<figure class="plane">{svg}\n<figcaption>{caption}</figcaption></figure>'
    return fill(asset("plane.html"), {"figure": figure})


def _layers(audit: Audit) -> str:
    if not audit.tensors:
        return asset("no_weights.html")
    cells = heat_map(audit.tensors)
    heat = cells and fill(asset("heat.html"), {"cells": cells})
    return heat + fill(asset("layers.html"), {"table": layer_table(audit.tensors)})
