"""The split view: mark positions, see the minimal cut and the bounds, measure the exact rank."""

from collections.abc import Mapping
from typing import Any

from rankscope.errors import RequestError
from rankscope.page.endpoints import Body, Download, Endpoint
from rankscope.page.jobs import State, Task
from rankscope.page.model_view import ENDINGS, quick
from rankscope.page.session import Session
from rankscope.strict_json import Choice, Integer, ListOf, Object, Reader, Text, Values

WORK = "rankscope.page.split_work"
MEASURING = "measuring"
DIAGRAMS = ("tensor-ring", "hierarchical-tucker", "cp", "tucker", "tt-matrix")


def list_subjects(session: Session, body: Body) -> Mapping[str, object]:
    """The networks with exact ranks, their options, and diagrams to begin with."""
    from rankscope.rank.networks.catalogue import CATALOGUE, DESCRIPTIONS

    networks = [
        {
            "name": name,
            "options": [
                {"word": word, "description": DESCRIPTIONS[setting]}
                for word, setting in entry.options.items()
            ],
        }
        for name, entry in CATALOGUE.items()
        if entry.example
    ]
    first = session.model if session.model in CATALOGUE else "tensor-train"
    return {"networks": networks, "diagrams": list(DIAGRAMS), "first": first}


def _asked(session: Session, function: str, body: Body) -> Any:
    return quick(session, function, "split", body, module=WORK)


def describe_subject(session: Session, body: Body) -> Mapping[str, object]:
    """What can be marked in a subject."""
    answer: dict[str, object] = _asked(session, "describe", body)
    return answer


def show_split(session: Session, body: Body) -> Mapping[str, object]:
    """The cut and the bounds of a split."""
    answer: dict[str, object] = _asked(session, "split", body)
    return answer


def export_figure(session: Session, body: Body) -> Download:
    """The picture of a split as a file."""
    content: bytes = _asked(session, "figure", body)
    return Download(f"split{body['ending']}", content, ENDINGS[body["ending"]])


def start_measuring(session: Session, body: Body) -> Mapping[str, object]:
    """Start a job that measures and certifies."""
    job = session.jobs.start(MEASURING, Task(f"{WORK}:measure", body), lane="measure")
    return {"job": job.to_dict()}


def _measured(session: Session, body: Body) -> dict[str, Any]:
    job = session.jobs.get(body["number"])
    if job.kind != MEASURING or job.state is not State.DONE:
        raise RequestError(f"Job {job.number} has not measured a rank.")
    result: dict[str, Any] = job.result
    return result


def show_measured(session: Session, body: Body) -> Mapping[str, object]:
    """What a job has measured."""
    result = _measured(session, body)
    return {key: value for key, value in result.items() if key != "certificate"}


def give_certificate(session: Session, body: Body) -> Download:
    """The certificate of a measured rank."""
    content = str(_measured(session, body)["certificate"]).encode()
    return Download("certificate.json", content, "application/json")


SUBJECT: dict[str, Reader[Any]] = {"name": Text(), "settings": Values(Text(), at_most=40)}
SPLIT = {**SUBJECT, "left": ListOf(Integer(0, 4095), at_most=4096)}
JOB = Object({"number": Integer(1, 2**31 - 1)})
ENDPOINTS = (
    Endpoint("/split/subjects", "What can be split.", list_subjects),
    Endpoint("/split/subject", "Positions of a subject.", describe_subject, Object(SUBJECT)),
    Endpoint("/split", "Minimal cut and bounds of a split.", show_split, Object(SPLIT)),
    Endpoint(
        "/split/figure",
        "The picture of a split as a file.",
        export_figure,
        Object({**SPLIT, "ending": Choice(tuple(ENDINGS))}),
    ),
    Endpoint(
        "/split/measure",
        "Measure the exact rank of a split.",
        start_measuring,
        Object({**SPLIT, "seed": Integer(0, 2**31 - 1)}),
    ),
    Endpoint("/split/measured", "What was measured.", show_measured, JOB),
    Endpoint("/split/certificate", "The certificate of a measured rank.", give_certificate, JOB),
)
