"""Records as lines and as plain data."""

import math

from rankscope.training.history import Record, from_plain, to_plain


def test_a_record_survives_json_with_what_is_not_finite_as_nan() -> None:
    record = Record(1, 10, 0.5, 1e-3, 2.0, {"accuracy": 0.25})
    assert from_plain(to_plain(record)) == record
    undefined = to_plain(Record(1, 10, 0.5, 1e-3, 2.0, {"ratio": math.inf}))
    assert undefined["metrics"] == {"ratio": None}
    assert math.isnan(from_plain(undefined).metrics["ratio"])
