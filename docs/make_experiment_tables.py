"""Put the results of experiments into the pages that speak of them: `make experiment-tables`.

Results are the folders in docs/results, as `rankscope experiment run NAME -o docs/results/NAME`
writes them; of each, `results.json`, `table.md` and `figure.svg` are kept in git. In a page of
docs or docs/experiments, the lines between `<!-- results: NAME -->` and `<!-- end -->` are replaced
by the table, the figure, and what was given to the rows.
"""

import os
import re
from pathlib import Path

from rankscope.lab.experiments.catalogue import find_experiment
from rankscope.lab.experiments.running import FIGURE, Outcome, read_outcome

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_PLACE = re.compile(r"<!-- results: ([a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)


def results_of(name: str, page_folder: Path) -> str:
    """The finished rows of an experiment as Markdown, and what is missing."""
    folder = RESULTS / name
    if not folder.is_dir():
        return "No row has been computed yet.\n"
    outcome = read_outcome(folder, find_experiment(name))
    parts = [
        table.to_markdown().split("\n", 2)[2] for table in (outcome.table, outcome.summary) if table
    ]
    if (folder / FIGURE).is_file():
        where = os.path.relpath(folder / FIGURE, page_folder)
        parts.append(f"![{outcome.experiment.title}]({where})\n")
    return "\n".join([*parts, _note(outcome)])


def _note(outcome: Outcome) -> str:
    seconds = outcome.manifest.seconds
    environment = outcome.environment
    if "versions" in environment:
        name = outcome.experiment.name
        note = (
            f"`rankscope experiment run {name} -o docs/results/{name}{_options(outcome)}` took "
            f"{outcome.seconds / 60:.1f} minutes of processor time in all"
        )
    else:  # computed by version 0.1.0, which did not write that down
        note = f"{outcome.experiment.title}. Each row had at most {seconds:g} s of one core"
    missing = outcome.num_runs - len(outcome.finished)
    if missing:
        return f"{note}; {missing} of {outcome.num_runs} rows are still to be computed.\n"
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
    return _PLACE.sub(
        lambda place: f"<!-- results: {place[1]} -->\n{results_of(place[1], folder)}<!-- end -->",
        page,
    )


def main() -> None:
    """Rewrite every page that has a place for results."""
    for path in sorted([*HERE.glob("*.md"), *HERE.glob("experiments/*.md")]):
        page = path.read_text(encoding="utf-8")
        if filled(page, path.parent) != page:
            path.write_text(filled(page, path.parent), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
