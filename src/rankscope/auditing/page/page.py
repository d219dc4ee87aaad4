"""An audit as one page: no server, no network, no other file."""

from dataclasses import asdict
from html import escape
from importlib.metadata import version

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Parameters
from rankscope.auditing.depth_width_law import parameters_in_blocks
from rankscope.auditing.findings import Finding, Severity
from rankscope.auditing.page.charts import heat_map
from rankscope.auditing.page.layers import LayerDiagrams, layer_data, layer_diagrams, layer_table
from rankscope.auditing.page.text import (
    PART_NAMES,
    asset,
    count_in_words,
    diagram_colors,
    embedded_json,
    fill,
    model_name,
    model_sentence,
    page_colors,
    percent,
    readable,
)
from rankscope.auditing.plane import place_model, to_svg

# --- The ranked findings: number against threshold, why, where from, and the command to act -------


# A shape beside each word, so that greyscale tells them apart.
MARKS = {Severity.WARNING: "▲", Severity.ADVICE: "●", Severity.NOTE: "○"}


def findings_list(findings: tuple[Finding, ...]) -> str:
    """An ordered list, or a sentence if nothing was found."""
    if not findings:
        return '<p class="nothing">Nothing stands out.</p>'
    return "<ol>\n" + "\n".join(_item(finding) for finding in findings) + "\n</ol>"


def _item(finding: Finding) -> str:
    severity = finding.severity.name.lower()
    saving = ""
    if finding.saving is not None:
        saving = f"<dt>would save</dt><dd>{percent(finding.saving)} of all parameters</dd>"
    return (
        f'<li class="finding {severity}" id="finding-{escape(finding.id)}">\n'
        f'<p class="severity"><span aria-hidden="true">{MARKS[finding.severity]}</span> '
        f"{severity.capitalize()}</p>\n"
        f"<h3>{escape(finding.title)}</h3>\n"
        f'<dl class="measure"><dt>found</dt><dd>{readable(finding.value)}</dd>'
        f"<dt>compared with</dt><dd>{readable(finding.threshold)}</dd>{saving}</dl>\n"
        f"<p>{escape(finding.reason)}</p>\n"
        f'<p class="reference">{escape(finding.reference)}</p>\n'
        f"{_command(finding.command)}</li>"
    )


def _command(command: str) -> str:
    if not command:
        return ""
    return (
        f'<div class="command"><code>{escape(command)}</code>'
        '<button type="button" class="copy" aria-label="Copy the command">Copy</button></div>\n'
    )


# --- Parameters by part: one bar, and a list that says the same in numbers ------------------------


def parameters_bar(parameters: Parameters) -> str:
    """A stacked bar with its legend; parts without parameters are left out."""
    counts = {part: count for part, count in asdict(parameters).items() if count}
    if not counts:
        return "<p>There are no parameters.</p>"
    total = parameters.total
    # Tenths of a percent keep the thinnest part visible without bending the others.
    bars = "".join(
        f'<span class="part-{part}" style="flex-grow:{max(count / total, 0.002):.5f}"></span>'
        for part, count in counts.items()
    )
    rows = "\n".join(
        f'<tr><th scope="row"><span class="swatch part-{part}"></span>{PART_NAMES[part]}</th>'
        f"<td>{count:,}</td><td>{percent(count / total)}</td></tr>"
        for part, count in counts.items()
    )
    return (
        f'<div class="bar" aria-hidden="true">{bars}</div>\n'
        f'<table class="legend"><tbody>\n{rows}\n</tbody><tfoot><tr><th scope="row">All</th>'
        f"<td>{total:,}</td><td></td></tr></tfoot></table>"
    )


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
        "total": escape(f"{count_in_words(audit.parameters.total)} parameters"),
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
    size = count_in_words(parameters_in_blocks(audit.configuration))
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
