from rankscope.experiments.bottlenecks import gain_rows
from rankscope.experiments.experiment import Row


def row(setting: str, seed: int, **scores: float) -> Row:
    return {"setting": setting, "seed": seed, **scores}


def test_gains_are_differences_of_the_same_seed() -> None:
    rows: list[Row] = [
        row("a-rank-2-base", 0, **{"test loss": 3.0}),
        row("a-rank-2-base", 1, **{"test loss": 5.0}),
        row("a-rank-2-wide", 0, **{"test loss": 2.5}),
        row("a-rank-2-wide", 1, **{"test loss": 4.5}),
        row("a-rank-2-deep", 0, **{"test loss": 2.0}),
        row("b-rank-3-base", 0, bits=4.0),
        row("b-rank-3-wide", 0, bits=4.5),
        {"setting": "exact-L2", "seed": None, "exact rank": 18},
    ]
    assert gain_rows(rows) == [
        {
            "family": "a-rank-2",
            "wide gains": "0.5 ± 0",
            "deep gains": "1",
            "deep over wide": "0.5",
        },
        {"family": "b-rank-3", "wide gains": "-0.5", "deep gains": None, "deep over wide": None},
    ]
