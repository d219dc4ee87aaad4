"""Errors travel between processes."""

import pickle

import pytest

from rankscope.errors import MissingExtraError, RankscopeError, TooLargeError


@pytest.mark.parametrize(
    "error",
    [
        MissingExtraError(what="The figure", package="matplotlib", extra="draw"),
        TooLargeError(what="The tensor", entries=81, limit=27, instead="Take less."),
    ],
)
def test_an_error_survives_the_way_out_of_a_worker(error: RankscopeError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived.exit_code == error.exit_code
