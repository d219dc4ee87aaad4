"""The model view: verdict and ranks at once, weights as they are read, a plan under a slider."""

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.families.catalogue import expected_tensors, read_configuration
from rankscope.auditing.findings import shape_findings
from rankscope.auditing.tensors import TensorRow, layer_of, part_of
from rankscope.auditing.weight_files import OpenedModel
from rankscope.errors import RankscopeError, RequestError
from rankscope.page.endpoints import Body, Download, Endpoint
from rankscope.page.jobs import Job, State, Task
from rankscope.page.loss_work import sources
from rankscope.page.model_data import overview, tensor_data
from rankscope.page.session import QUICK, Session
from rankscope.strict_json import (
    Choice,
    Integer,
    ListOf,
    Number,
    Object,
    Optional,
    Reader,
    Text,
    Values,
)

WORK = "rankscope.page.model_work"
SAVING, MEASURING = "saving", "measuring losses"
SECONDS = 120.0  # that a request waits for a quick job, a worker that has to start included
FORMATS = ("svd", "cp", "tucker", "tensor-train")  # those of the candidates
MOST_PLANS = 1000  # that are kept: more than a slider has places
ENDINGS = {".svg": "image/svg+xml", ".pdf": "application/pdf", ".tikz": "text/plain"}
T = TypeVar("T")


class Answers(Generic[T]):
    """The latest answers by their question. May be asked from any thread.

    Args:
        most: answers that are kept.

    Example:
        >>> answers = Answers(most=2)
        >>> [answers.get("1 + 1", lambda: 2), answers.get("1 + 1", lambda: 3)]
        [2, 2]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, Future[T]] = {}
        self._lock = threading.Lock()

    def get(self, question: str, compute: Callable[[], T]) -> T:
        """The answer; an error is raised to all who wait for it, and not kept."""
        with self._lock:
            known = self._known.pop(question, None)
            future: Future[T] = known or Future()
            self._known[question] = future  # the latest stands last
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        if known is None:
            self._fill(future, question, compute)
        return future.result()

    def _fill(self, future: "Future[T]", question: str, compute: Callable[[], T]) -> None:
        try:
            future.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._known.get(question) is future:
                    del self._known[question]
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise


class ModelState:
    """What is known of the model so far."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self.problems: dict[str, str] = {}
        self.candidates: dict[str, Any] | None = None
        self.plans: Answers[bytes] = Answers(MOST_PLANS)
        self.is_complete = False
        self.audit = self._sketch()
        self._rows = {row.name: row for row in self.audit.tensors}
        self._start_audit()
        self.start_candidates()

    # --- The audit: shapes first, then row after row ---

    def _sketch(self) -> Audit:
        source = self._session.model or "the embedded transformer"
        try:
            return sketched(self._session.model, source)
        except RankscopeError as error:
            self.problems["sketch"] = str(error)
            return Audit(source, None, Parameters(), ())

    def _start_audit(self) -> None:
        task = Task(
            f"{WORK}:audit",
            {"model": self._session.model},
            on_part=self._add_row,
            on_end=self._end_audit,
        )
        self._session.jobs.start("reading weights", task, lane="audit")

    def _add_row(self, row: TensorRow) -> None:
        with self._lock:
            self._rows[row.name] = row
        self._session.events.add("tensor", tensor=tensor_data(row))

    def _end_audit(self, job: Job) -> None:
        with self._lock:
            if job.state is State.DONE:
                self.audit, self.is_complete = job.result, True
                self._rows = {row.name: row for row in self.audit.tensors}
                self.problems.pop("audit", None)
            else:
                self.problems["audit"] = job.error or "Reading the weights was cancelled."
        self._session.events.add("model")

    def row(self, name: str) -> TensorRow:
        """The row of a tensor, read or not.

        Raises:
            RequestError: if there is none of that name.
        """
        with self._lock:
            if name not in self._rows:
                raise RequestError(f"There is no tensor {name[:100]!r} in this model.")
            return self._rows[name]

    def to_dict(self) -> dict[str, object]:
        """All of it as plain data."""
        with self._lock:
            seen = replace(self.audit, tensors=tuple(self._rows.values()))
            return {
                **overview(seen, is_complete=self.is_complete),
                "problems": dict(self.problems),
                "candidates": self.candidates_data(),
                "output": str(self._session.output),
            }

    # --- Candidates: once, then solved again and again ---

    def start_candidates(self) -> None:
        """Compute the candidates, or read those of an earlier run."""
        task = Task(
            f"{WORK}:candidates",
            {"model": self._session.model, "output": str(self._session.output.absolute())},
            on_end=self._end_candidates,
        )
        self._session.jobs.start("listing candidates", task, lane="plan")

    def _end_candidates(self, job: Job) -> None:
        if job.state is State.DONE:
            self.candidates = job.result
            self.problems.pop("candidates", None)
        else:
            self.problems["candidates"] = job.error or "Listing candidates was cancelled."
        self._session.events.add(
            "candidates", candidates=self.candidates_data(), problem=self.problems.get("candidates")
        )

    # --- Losses: measured once for each text, then predicted for every plan ---

    def sources(self) -> list[str]:
        """What losses can be measured on, by name."""
        try:
            return sources(self._session.model)
        except RankscopeError:
            return []  # the sketch says what is wrong with the model

    def start_losses(self, source: str) -> Job:
        """Measure losses on a source.

        Raises:
            RequestError: if there is none of that name, or the model has no candidates.
        """
        known = self.sources()
        if source not in known:
            raise RequestError(
                f"Losses can be measured on {', '.join(known) or 'nothing here'}; "
                f"there is no {source[:100]!r}."
            )
        _ = self.table
        output = str(self._session.output.absolute())
        task = Task(
            "rankscope.page.loss_work:measure",
            {"model": self._session.model, "output": output, "source": source},
            on_end=self._end_losses,
        )
        return self._session.jobs.start(MEASURING, task, lane="losses")

    def _end_losses(self, job: Job) -> None:
        if job.state is State.DONE:
            self._end_candidates(job)

    def candidates_data(self) -> dict[str, object] | None:
        """What the page knows of the candidates."""
        if self.candidates is None:
            return None
        return {key: value for key, value in self.candidates.items() if key != "path"}

    @property
    def table(self) -> str:
        """The file of the candidates.

        Raises:
            RequestError: if there is none yet.
        """
        if self.candidates is None:
            problem = self.problems.get("candidates", "They are still being computed.")
            raise RequestError(f"There are no candidates to choose from: {problem}")
        return str(self.candidates["path"])


def sketched(model: str | None, source: str) -> Audit:
    """What shapes alone say, without torch; empty if only code can tell.

    Raises:
        RankscopeError: if there is no such model, or it contradicts itself.
    """
    from rankscope.auditing.embedded import embedded_model
    from rankscope.auditing.weight_files import open_model as open_weights
    from rankscope.models import open_model

    if model is None:
        opened: OpenedModel = open_weights(embedded_model("transformer"))
    else:
        named = open_model(model)
        named.require_for("audit")
        if named.kind not in ("folder of a model", "configuration", "file of weights"):
            return Audit(source, None, Parameters(), ())
        opened = open_weights(Path(model) if named.folder is None else named.folder)
    configuration = _configuration(opened)
    findings = () if configuration is None else shape_findings(configuration)
    ordered = tuple(sorted(findings, key=lambda finding: -finding.severity))
    parameters = Parameters() if configuration is None else configuration.parameters
    rows = tuple(_unread(*one) for one in _shapes(opened))
    return Audit(source, configuration, parameters, ordered, rows)


def _configuration(opened: OpenedModel) -> Configuration | None:
    if opened.config is None:
        return None
    try:
        return read_configuration(opened.config, family=None, who=opened.name)
    except RankscopeError:
        return None  # the audit, which knows more ways, says what is wrong


def _shapes(opened: OpenedModel) -> list[tuple[str, tuple[int, ...], str]]:
    if opened.tensors is not None:
        return [(entry.name, entry.shape, entry.dtype) for entry in opened.tensors.entries]
    try:
        document = opened.config or {}
        listed = expected_tensors(document, family=None, who=opened.name)
    except RankscopeError:
        return []
    return [(one.name, one.shape, "float32") for one in listed if not one.is_tied]


def _unread(name: str, shape: tuple[int, ...], dtype: str) -> TensorRow:
    longer = sum(size > 1 for size in shape)
    reason = {0: "a single number", 1: "a vector"}.get(longer)
    return TensorRow(name, part_of(name), shape, dtype, reason=reason, layer=layer_of(name))


# --- Endpoints ------------------------------------------------------------------------------------


def show_model(session: Session, body: Body) -> Mapping[str, object]:
    """What is known so far."""
    return session.state(ModelState).to_dict()


def show_spectrum(session: Session, body: Body) -> Mapping[str, object]:
    """One tensor with all its spectra."""
    row = session.state(ModelState).row(body["name"])
    answer: dict[str, object] = quick(session, "spectrum", "draw", {"row": row})
    return answer


def quick(
    session: Session,
    function: str,
    lane: str,
    arguments: Mapping[str, object],
    *,
    module: str = WORK,
) -> Any:
    """The result of a job that takes a moment.

    Raises:
        RequestError: if it failed, or is not done in time.
    """
    job = session.jobs.start(QUICK, Task(f"{module}:{function}", arguments), lane=lane)
    job = session.jobs.wait(job.number, SECONDS)
    if not job.is_over:
        session.jobs.cancel(job.number)
        raise RequestError(f"This took more than {SECONDS:g} seconds, and was ended.")
    session.jobs.forget(job.number)
    if job.state is not State.DONE:
        raise RequestError(job.error or "This was cancelled.")
    return job.result


def solve_plan(session: Session, body: Body) -> bytes:
    """A plan for a budget."""
    state = session.state(ModelState)
    path = state.table
    request = {key: body[key] for key in REQUEST.parts}
    is_quick = body["method"] == "quick"
    # A proof may take seconds, which the slider does not wait for.
    lane = "plan" if is_quick else "exact"
    arguments = {"path": path, "request": request, "is_quick": is_quick}
    key = json.dumps(arguments, sort_keys=True)
    return state.plans.get(key, lambda: quick(session, "solve", lane, arguments))


def show_site(session: Session, body: Body) -> Mapping[str, object]:
    """The candidates of one weight."""
    path = session.state(ModelState).table
    answer: dict[str, object] = quick(session, "site", "plan", {"path": path, "name": body["name"]})
    return answer


def draw_layer(session: Session, body: Body) -> Mapping[str, object]:
    """A layer as a picture, an equation, a cost and code."""
    answer: dict[str, object] = quick(session, "draw_layer", "draw", _layer(body))
    return answer


def export_figure(session: Session, body: Body) -> Download:
    """The picture of a layer as a file."""
    ending = body["ending"]
    content: bytes = quick(session, "figure", "draw", {**_layer(body), "ending": ending})
    return Download(f"layer{ending}", content, ENDINGS[ending])


def _layer(body: Body) -> dict[str, object]:
    if len(body["shape"]) < 2:
        raise RequestError(f"A layer has at least 2 sizes, got {len(body['shape'])}.")
    return {key: body[key] for key in ("kind", "shape", "format", "ranks")}


def save_model(session: Session, body: Body) -> Mapping[str, object]:
    """Start a job that carries out the plan and writes the model."""
    state = session.state(ModelState)
    target = session.output_path(body["name"])
    task = Task(
        f"{WORK}:save",
        {
            "model": session.model,
            "path": state.table,
            "request": {key: body[key] for key in REQUEST.parts},
            "folder": str(target.absolute()),
        },
    )
    return {"job": session.jobs.start(SAVING, task, lane="save").to_dict()}


def show_sources(session: Session, body: Body) -> Mapping[str, object]:
    """What losses can be measured on."""
    return {"sources": session.state(ModelState).sources()}


def measure_losses(session: Session, body: Body) -> Mapping[str, object]:
    """Start a job that measures losses; the plan uses them when it is done."""
    return {"job": session.state(ModelState).start_losses(body["source"]).to_dict()}


def show_saved(session: Session, body: Body) -> Mapping[str, object]:
    """What a job that is done has written."""
    job = session.jobs.get(body["number"])
    if job.kind != SAVING or job.state is not State.DONE:
        raise RequestError(f"Job {job.number} has not saved a model.")
    return {"result": job.result}


def retry(session: Session, body: Body) -> Mapping[str, object]:
    """List the candidates once more."""
    session.state(ModelState).start_candidates()
    return {}


UNIT = Choice(("parameters", "bytes", "flops"))
REQUEST = Object(
    {
        "keep": Number(),
        "by": UNIT,
        "also": Optional(Object({"keep": Number(), "by": UNIT})),
        "pinned": Values(Integer(0, 10_000), at_most=20_000),
        "forbidden": ListOf(Text(), at_most=20),
    }
)
LAYER: dict[str, Reader[Any]] = {
    "kind": Text(),
    "shape": ListOf(Integer(1, 10**9), at_most=4),
    "format": Optional(Choice(FORMATS)),
    "ranks": ListOf(Integer(1, 10**6), at_most=8),
}
ENDPOINTS = (
    Endpoint("/model", "What is known of the model so far.", show_model),
    Endpoint("/spectrum", "One tensor with its spectra.", show_spectrum, Object({"name": Text()})),
    Endpoint(
        "/plan",
        "A plan for a budget: quick while the slider moves, exact when it rests.",
        solve_plan,
        Object({**REQUEST.parts, "method": Choice(("quick", "exact"))}),
    ),
    Endpoint("/site", "All candidates of one weight.", show_site, Object({"name": Text()})),
    Endpoint("/layer", "A layer's diagram, equation, cost and code.", draw_layer, Object(LAYER)),
    Endpoint(
        "/layer/figure",
        "The diagram of a layer as a file.",
        export_figure,
        Object({**LAYER, "ending": Choice(tuple(ENDINGS))}),
    ),
    Endpoint(
        "/save",
        "Carry out a plan and write the model into the output folder.",
        save_model,
        Object({**REQUEST.parts, "name": Text()}),
    ),
    Endpoint(
        "/save/result",
        "Where a model was saved, and how it is opened.",
        show_saved,
        Object({"number": Integer(1, 2**31 - 1)}),
    ),
    Endpoint("/losses", "Texts and data sets that losses can be measured on.", show_sources),
    Endpoint(
        "/losses/measure",
        "Measure what each weight's error does to the loss; plans then predict it.",
        measure_losses,
        Object({"source": Text()}),
    ),
    Endpoint("/candidates/retry", "List the candidates again.", retry, Object({})),
)
