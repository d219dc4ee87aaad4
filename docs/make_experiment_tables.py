"""Put the results of experiments into the pages that speak of them: `make experiment-tables`.

Results are the folders in docs/results, as `rankscope experiment run NAME -o docs/results/NAME`
writes them. In a page, the lines between `<!-- results: NAME -->` and `<!-- end -->` are replaced.
"""

import re
from pathlib import Path

from rankscope.experiments.catalogue import find_experiment
from rankscope.experiments.results import read_manifest, read_table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_PLACE = re.compile(r"<!-- results: ([a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)


def table_of(name: str) -> str:
    """The finished rows of an experiment as a Markdown table, and what is missing."""
    folder = RESULTS / name
    if not folder.is_dir():
        return "No row has been computed yet.\n"
    experiment = find_experiment(name)
    table = read_table(folder, experiment.title, tuple(entry.name for entry in experiment.entries))
    lines = table.to_markdown().split("\n", 2)[2]
    missing = len(experiment.entries) - len(table.rows)
    seconds = read_manifest(folder).seconds
    note = f"{experiment.title}. Each row had at most {seconds:g} s of one core"
    note += (
        f"; {missing} of {len(experiment.entries)} rows are still to be computed."
        if missing
        else "."
    )
    return f"{lines}\n{note}\n"


def filled(page: str) -> str:
    """A page with its tables as the results are now."""
    return _PLACE.sub(
        lambda place: f"<!-- results: {place[1]} -->\n{table_of(place[1])}<!-- end -->", page
    )


def main() -> None:
    """Rewrite every page that has a place for results."""
    for path in sorted(HERE.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        if filled(page) != page:
            path.write_text(filled(page), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
