import re

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.configuration import Parameters
from rankscope.auditing.page.page import parameters_bar


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=6, max_size=6))
def test_every_part_with_parameters_has_a_piece_of_the_bar_and_a_row(counts: list[int]) -> None:
    written = parameters_bar(Parameters(*counts))
    present = [count for count in counts if count]
    assert len(re.findall("flex-grow", written)) == len(present)
    assert [f"<td>{count:,}</td>" in written for count in present] == [True] * len(present)


def test_the_bar_is_in_proportion() -> None:
    written = parameters_bar(Parameters(embedding=1, attention=3))
    assert re.findall(r"flex-grow:([\d.]+)", written) == ["0.25000", "0.75000"]


def test_a_model_without_parameters_says_so() -> None:
    assert parameters_bar(Parameters()) == "<p>There are no parameters.</p>"
