"""Put the results of experiments into the pages that speak of them: `make experiment-tables`.

Results are the folders in docs/results, as `rankscope experiment run NAME -o docs/results/NAME`
writes them; of each, `results.json`, `table.md` and `figure.svg` are kept in git. In a page of
docs or docs/experiments, the lines between `<!-- results: NAME -->` and `<!-- end -->` are replaced
by the table, the figure, what was given to the rows, and what they say: every comparison with its
difference, its interval and its verdict. `<!-- in short: NAME -->` becomes how many of them are
decided, `<!-- verdicts -->` one line for each experiment, `<!-- training -->` the newest row of
each network in benchmarks/results/training.jsonl.

Conclusions come from rows only: an interval (±) or "What it says" anywhere else on a page that
shows results is refused, and with `--check` so is a page that is not what its rows say.
With `--figures`, tables, figures and statements are made again from the committed rows first.
"""

import json
import os
import re
import sys
from pathlib import Path

from rankscope.lab.experiments.catalogue import find_experiment
from rankscope.lab.experiments.claims import Verdict
from rankscope.lab.experiments.results import MANIFEST
from rankscope.lab.experiments.running import (
    FIGURE,
    TABLE,
    Outcome,
    is_results_folder,
    pack,
    read_outcome,
)
from rankscope.lab.experiments.wording import capitalized

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_PLACE = re.compile(r"<!-- results: ([a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)
_SHORT = re.compile(r"<!-- in short: ([a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)
_VERDICTS = re.compile(r"<!-- verdicts -->\n.*?<!-- end -->", re.DOTALL)
_TRAINING = re.compile(r"<!-- training -->\n.*?<!-- end -->", re.DOTALL)
_SPEEDS = HERE.parent / "benchmarks" / "results" / "training.jsonl"
# A verdict at the end of a sentence, alone in its cell, or before what the hypothesis says of it.
_VERDICT = re.compile(
    rf"(?:(?<=: )|^)({'|'.join(sorted(map(str, Verdict), key=len, reverse=True))})(?=[.,]|$)"
)
# What only rows may say: an interval, and the heading of the statements.
_CLAIM = re.compile(r"\d\s*±\s*\d|What it says")
# In the order in which the list of pages shows them, with the page of each.
PAGES = {
    "tt-cp-rank": "tt-cp-rank.md",
    "tt-mnist": "tt-mnist.md",
    "tt-digits": "tt-mnist.md",
    "shallow-vs-deep": "shallow-vs-deep.md",
    "degree-budget": "degree-budget.md",
    "depth-width": "depth-width.md",
    "embedding-bottleneck": "embedding-bottleneck.md",
    "head-bottleneck": "head-bottleneck.md",
    "attention-forms": "attention-forms.md",
    "rank-predicts-loss": "rank-predicts-loss.md",
    "spectrum-predicts-loss": "rank-predicts-loss.md",
    "mixer-budget": "mixer-budget.md",
    "mixer-budget-mnist": "mixer-budget.md",
    "graph-sparsification": "graph-sparsification.md",
    "feature-order": "feature-order.md",
    "cifar10-compression": "../compression.md",
    "cifar10-compression-longer": "../compression.md",
    "cifar10-compression-planned": "../compression.md",
    "sequential-vs-end-to-end": "../compression.md",
    "minilm-compression": "../compression.md",
    "stories260k-compression": "../compression.md",
    "smollm2-compression": "../compression.md",
    "pronunciation-compression": "../compression.md",
    "reshaping": "../compression.md",
    "cp-layers-accuracy": "../generalization.md",
    "label-noise": "../generalization.md",
    "label-noise-cifar10": "../generalization.md",
    "bound-vs-test-error": "../generalization.md",
    "non-vacuous-bound": "../generalization.md",
    "cp-properties": "../generalization.md",
    "orthogonality": "../robustness.md",
    "lipschitz-digits": "../robustness.md",
    "lipschitz-cifar10": "../robustness.md",
    "lipschitz-cifar10-longer": "../robustness.md",
}


def results_of(name: str, page_folder: Path) -> str:
    """An experiment as Markdown: its figure, what it says, its rows, and what is missing."""
    folder = RESULTS / name
    outcome = read_outcome(folder, find_experiment(name)) if folder.is_dir() else None
    if outcome is None or not outcome.finished:
        return "No row has been computed yet.\n"
    parts = []
    if (folder / FIGURE).is_file():
        where = os.path.relpath(folder / FIGURE, page_folder)
        parts.append(f"![{outcome.experiment.title}]({where})\n")
    parts += _said(outcome)
    parts += [
        table.to_markdown().split("\n", 2)[2]
        for table in (outcome.shown_table, outcome.summary)
        if table
    ]
    everything = os.path.relpath(folder / TABLE, page_folder)
    return "\n".join([*parts, _note(outcome, everything)])


def _said(outcome: Outcome) -> list[str]:
    """What the rows say: the comparisons as a table, then the facts."""
    if not outcome.statements:
        return []
    claims = outcome.experiment.claims
    assert claims is not None, "statements come from claims"
    hypothesis = f" Hypothesis: {claims.hypothesis}" if claims.hypothesis else ""
    stopping = f" Stopping rule: {outcome.experiment.stopping}"
    facts = [one for one in outcome.statements if one.verdict is Verdict.FACT]
    compared = [one for one in outcome.statements if one.is_comparison]
    rule = (
        " Differences are first minus second, seed by seed, with 95 % intervals, each by itself: "
        "of twenty pairs without a difference one would be decided."
    )
    lines = [f"**What it says.**{hypothesis}{stopping}{rule if claims.pairs else ''}", ""]
    if compared:
        lines += ["| comparison | result | verdict |", "|---|---|---|"]
        lines += [
            f"| {capitalized(one.subject)} | {one.detail} | {_emphasized(one.judgement)} |"
            for one in compared
        ]
        lines.append("")
    lines += [f"- {_emphasized(capitalized(str(one)))}" for one in facts]
    missing = len(outcome.statements) - len(facts) - len(compared)
    if missing:
        lines.append(f"- {missing} of {len(outcome.statements)} are not computed yet.")
    return ["\n".join(lines).rstrip() + "\n"]


def _emphasized(text: str) -> str:
    """The same with its verdict in bold."""
    return _VERDICT.sub(r"**\1**", text)


def in_short(name: str) -> str:
    """What an experiment answers, and how many of its comparisons are decided."""
    folder = RESULTS / name
    if not folder.is_dir():
        return "Not computed yet"
    return _emphasized(read_outcome(folder, find_experiment(name)).headline)


def _short_place(name: str) -> str:
    text = in_short(name).rstrip(".")
    return f"<!-- in short: {name} -->\n**In short** ({name}). {text}.\n<!-- end -->"


def verdicts() -> str:
    """One line for each experiment: its question, and what its rows decide."""
    lines = ["| experiment | question | decided? |", "|---|---|---|"]
    for name, page in PAGES.items():
        experiment = find_experiment(name)
        assert experiment.claims is not None, f"{name} declares what it is to decide"
        lines.append(f"| [{name}]({page}) | {experiment.claims.question} | {in_short(name)} |")
    return "\n".join(lines) + "\n"


def training_speeds() -> str:
    """How fast each network is trained, as `python -m benchmarks training` measured it last."""
    columns = {
        "samples per second before": "{:,}",
        "samples per second after": "{:,}",
        "share of the product's rate": "{:.2f}",
        "wanted": "{:.2f}",
        "own products over step": "{:.2f}",
        "compiled": "{:.2f}",
    }
    lines = [f"| network | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    rows = [json.loads(line) for line in _SPEEDS.read_text("utf-8").splitlines()]
    newest = {row["case"]: row for row in rows if set(columns) <= set(row)}
    for case, row in newest.items():
        cells = (
            "-" if row[name] is None else form.format(row[name]) for name, form in columns.items()
        )
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def require_no_claims(page: str, name: str) -> None:
    """Refuse a page with a conclusion that no command rendered.

    Raises:
        SystemExit: with the sentence.
    """
    if not _PLACE.search(page):
        return
    rest = _VERDICTS.sub("", _SHORT.sub("", _PLACE.sub("", page)))
    claim = _CLAIM.search(rest)
    if claim is not None:
        line = rest[: claim.end()].count("\n")
        sys.exit(
            f"{name}: {rest.splitlines()[line]!r} claims something that no rows were asked for. "
            f"Declare it as a pair or a fact of the experiment, or leave it out."
        )


def _note(outcome: Outcome, everything: str) -> str:
    """The command that made the rows, its time, what is missing, and where all columns are."""
    if "versions" in outcome.environment:
        name = outcome.experiment.name
        note = (
            f"`rankscope experiment run {name} -o docs/results/{name}{_options(outcome)}` took "
            f"{outcome.seconds / 60:.1f} minutes of processor time in all"
        )
    else:  # computed by version 0.1.0, which did not write that down
        seconds = outcome.manifest.seconds
        note = f"{outcome.experiment.title}. Each row had at most {seconds:g} s of one core"
    missing = outcome.num_runs - len(outcome.finished)
    if missing:
        note += f"; {missing} of {outcome.num_runs} rows are still to be computed"
    if outcome.experiment.columns:
        note += f". All columns: [table.md]({everything})"
    return f"{note}.\n"


def _options(outcome: Outcome) -> str:
    """What differs from the usual."""
    manifest, experiment = outcome.manifest, outcome.experiment
    usual_seeds = None if experiment.seeds == 1 else experiment.seeds
    seeds = "" if manifest.seeds in (None, usual_seeds) else f" --seeds {manifest.seeds}"
    is_usual = manifest.seconds == experiment.seconds
    minutes = "" if is_usual else f" --minutes {manifest.seconds / 60:g}"
    return f"{seeds}{minutes}"


def filled(page: str, folder: Path = HERE) -> str:
    """A page of a folder with its tables as the results are now."""
    page = _PLACE.sub(
        lambda place: f"<!-- results: {place[1]} -->\n{results_of(place[1], folder)}<!-- end -->",
        page,
    )
    page = _SHORT.sub(lambda place: _short_place(place[1]), page)
    page = _TRAINING.sub(lambda _: f"<!-- training -->\n{training_speeds()}<!-- end -->", page)
    return _VERDICTS.sub(lambda _: f"<!-- verdicts -->\n{verdicts()}<!-- end -->", page)


def pack_rows() -> None:
    """Put rows that a killed run left in files of their own into the `results.json` beside them.

    Git keeps `results.json` only: a page must not show what a clone does not have.
    """
    for folder in sorted(RESULTS.iterdir()):
        if (folder / MANIFEST).is_file() and read_outcome(folder).finished:
            pack(folder)


def pack_again() -> None:
    """Write what follows from the rows of every experiment once more: its code may have changed."""
    for name in PAGES:
        if is_results_folder(RESULTS / name):
            pack(RESULTS / name, find_experiment(name))


def main(arguments: list[str]) -> None:
    """Rewrite every page that has a place for results; with --check, refuse what would change."""
    if "--check" not in arguments:
        pack_rows()
    if "--figures" in arguments:
        pack_again()
    for path in sorted([*HERE.glob("*.md"), *HERE.glob("experiments/*.md")]):
        page = path.read_text(encoding="utf-8")
        require_no_claims(page, path.name)
        text = filled(page, path.parent)
        if text == page:
            continue
        if "--check" in arguments:
            sys.exit(f"{path.name} does not say what its rows say; run `make experiment-tables`.")
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
