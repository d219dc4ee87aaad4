from rankscope.auditing import ExpectedTensor, Part
from rankscope.auditing.families.tensor_list import (
    count_beyond_width,
    count_parameters,
    linear,
    transposed,
)


def test_parts_are_the_fields_of_the_counts() -> None:
    tensors = [
        ExpectedTensor(part.value, (number + 2, 3), part) for number, part in enumerate(Part)
    ]
    counts = count_parameters(tensors).to_dict()
    assert counts.pop("total") == 3 * (2 + 3 + 4 + 5 + 6 + 7)
    assert counts == {part.value: 3 * (number + 2) for number, part in enumerate(Part)}


def test_tied_tensors_are_not_counted_again() -> None:
    first = ExpectedTensor("embed", (5, 3), Part.EMBEDDING)
    again = ExpectedTensor("head", (5, 3), Part.HEAD, is_tied=True)
    assert count_parameters([first, again]).to_dict()["total"] == 15


def test_a_transposed_matrix_keeps_its_bias_and_turns_its_heads() -> None:
    weight, bias = transposed(linear("c_attn", (6, 2), Part.ATTENTION, bias=True, head_axis=0))
    assert (weight.shape, weight.head_axis) == ((2, 6), 1)
    assert (bias.shape, bias.head_axis) == ((6,), 0)


def test_an_output_bias_does_not_run_along_heads() -> None:
    weight, bias = linear("o_proj", (4, 6), Part.ATTENTION, bias=True, head_axis=1)
    assert (weight.head_axis, bias.head_axis) == (1, None)
    assert count_beyond_width([weight, bias], attention_width=6, width=4) == 4 * 2
