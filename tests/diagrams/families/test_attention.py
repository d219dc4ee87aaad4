from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rankscope.diagrams import Diagram, IndexKind, input_arrays
from rankscope.diagrams.families import (
    cp_attention,
    grouped_query,
    multi_head,
    single_head,
    tunable_attention,
    with_batch,
    with_causal_mask,
)
from rankscope.errors import FamilyError

Array = NDArray[np.float64]
Evaluate = Callable[[Diagram, dict[str, Array]], Array]
RandomArrays = Callable[[Diagram], dict[str, Array]]
Count = Callable[[Diagram], int]

# All unequal, so that no two axes can be mistaken for each other.
SIZES = {"num_queries": 4, "num_keys": 5, "num_features": 7}


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def head(x: Array, y: Array, weights: tuple[Array, Array, Array], scale: float) -> Array:
    """One head by matrices: queries x, memory y, weights of queries, keys and values."""
    query, key, value = weights
    return softmax((x @ query) @ (y @ key).T * scale) @ (y @ value)


def test_single_head_attention_is_the_formula_of_the_paper(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = single_head(**SIZES, head_size=3)
    a = random_arrays(diagram)
    expected = head(a["query"], a["memory"], (a["WQ"], a["WK"], a["WV"]), 3**-0.5)
    np.testing.assert_allclose(evaluate(diagram, a), expected)


def test_multi_head_attention_is_a_sum_of_heads(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = multi_head(**SIZES, num_heads=2, head_size=3)
    a = random_arrays(diagram)
    expected = sum(
        head(a["query"], a["memory"], (a["WQ"][..., h], a["WK"][..., h], a["WV"][..., h]), 3**-0.5)
        @ a["WO"][..., h].T
        for h in range(2)
    )
    np.testing.assert_allclose(evaluate(diagram, a), expected)


def test_grouped_query_heads_share_the_keys_and_values_of_their_group(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = grouped_query(**SIZES, num_heads=6, num_groups=2, head_size=5)
    a = random_arrays(diagram)
    expected = sum(
        head(
            a["query"], a["memory"], (a["WQ"][..., k, q], a["WK"][..., k], a["WV"][..., k]), 5**-0.5
        )
        @ a["WO"][..., k, q].T
        for k in range(2)
        for q in range(3)
    )
    np.testing.assert_allclose(evaluate(diagram, a), expected)


def test_cp_attention_is_multi_head_attention_with_heads_of_one_feature(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = cp_attention(**SIZES, attention_rank=3)
    a = random_arrays(diagram)
    heads = multi_head(**SIZES, num_heads=3, head_size=1)
    same = {name: value[:, None, :] for name, value in a.items() if name.startswith("W")}
    np.testing.assert_allclose(evaluate(diagram, a), evaluate(heads, a | same))


def test_tunable_attention_is_its_formula(evaluate: Evaluate, random_arrays: RandomArrays) -> None:
    diagram = tunable_attention(**SIZES, attention_rank=3)
    a = random_arrays(diagram)
    x, y = a["query"], a["memory"]
    expected = np.zeros((4, 7))
    for t in range(3):
        scores = (x @ a["WQ"] * a["C"][t]) @ (y @ a["WK"]).T
        channel = softmax(scores * 3**-0.5) @ (y @ a["WV"][:, t])
        expected += np.outer(channel, a["WO"][:, t])
    np.testing.assert_allclose(evaluate(diagram, a), expected)


def test_a_block_core_makes_tunable_attention_multi_head(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    """The conversion of a trained layer, with r = h D + d and the scale of R in the core."""
    heads = multi_head(**SIZES, num_heads=2, head_size=3)
    a = random_arrays(heads)
    flat = {name: a[name].transpose(0, 2, 1).reshape(7, 6) for name in ("WQ", "WK", "WV", "WO")}
    core = np.sqrt(2) * np.kron(np.eye(2), np.ones((3, 3)))
    tunable = tunable_attention(**SIZES, num_heads=2, head_size=3)
    np.testing.assert_allclose(evaluate(tunable, a | flat | {"C": core}), evaluate(heads, a))


def test_a_batch_runs_every_sequence_on_its_own(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    plain = multi_head(**SIZES, num_heads=2, head_size=3)
    diagram = with_batch(plain, batch_size=6)
    a = random_arrays(diagram)
    value = evaluate(diagram, a)
    assert value.shape == (6, 4, 7)
    for place in range(6):
        one = a | {name: a[name][place] for name in ("query", "memory")}
        np.testing.assert_allclose(value[place], evaluate(plain, one))


def test_a_causal_mask_hides_later_keys(evaluate: Evaluate, random_arrays: RandomArrays) -> None:
    diagram = with_causal_mask(multi_head(**SIZES, num_heads=2, head_size=3))
    a = random_arrays(diagram)
    changed = a | {"memory": a["memory"].copy()}
    changed["memory"][3] += 1
    before, after = evaluate(diagram, a), evaluate(diagram, changed)
    np.testing.assert_allclose(before[:3], after[:3])
    assert np.abs(before[3] - after[3]).max() > 1e-3


def test_parameters_are_those_of_the_formulas(count_parameters: Count) -> None:
    features, heads, width, groups, rank = 768, 12, 64, 4, 96
    sizes = {"num_features": features, "head_size": width}
    assert count_parameters(single_head(**sizes)) == 3 * features * width
    many = multi_head(**sizes, num_heads=heads)
    assert count_parameters(many) == 4 * features * width * heads == 2_359_296
    grouped = grouped_query(**sizes, num_heads=heads, num_groups=groups)
    assert count_parameters(grouped) == 2 * features * width * (heads + groups)
    flat = cp_attention(num_features=features, attention_rank=rank)
    assert count_parameters(flat) == 4 * features * rank
    tunable = tunable_attention(num_features=features, attention_rank=rank)
    assert count_parameters(tunable) == 4 * features * rank + rank**2


def test_the_head_index_leaves_the_barrier_once_and_is_on_all_weights() -> None:
    diagram = multi_head()
    assert diagram.structure.owners["h"] == ("WQ", "WK", "WV", "WO")
    assert diagram.structure.legs["A"] == ("n", "h", "m")
    assert diagram.regions[0].over == ("m",)
    assert diagram.index_by_name["h"].kind is IndexKind.HEAD


def test_inputs_are_a_query_and_a_memory() -> None:
    assert input_arrays(multi_head()) == ("query", "memory")


def test_a_memory_of_another_length_has_its_own_letter() -> None:
    assert multi_head(**SIZES).node_by_name["Xk"].tex == r"\mathbf{Y}"
    assert multi_head(num_queries=4, num_keys=4).node_by_name["Xv"].tex == r"\mathbf{X}"
    assert multi_head(num_queries=4).node_by_name["Xv"].tex == r"\mathbf{X}"


def test_the_rank_of_cp_attention_is_by_default_heads_times_width() -> None:
    assert cp_attention(num_heads=12, head_size=64).symbols["R"] == 768
    assert tunable_attention(num_heads=12, head_size=64).sizes["t"] == 768
    assert cp_attention(num_heads=12, head_size=64, attention_rank=12).symbols["R"] == 12


def test_a_product_that_is_half_known_stays_visible_in_the_label() -> None:
    assert cp_attention(num_heads=12).index_by_name["r"].tex == r"12\,D"
    assert cp_attention(head_size=64).index_by_name["r"].tex == r"64\,H"
    assert cp_attention().index_by_name["r"].tex == "R"
    assert grouped_query(num_heads=12).index_by_name["q"].tex == r"12\,/\,G"
    assert grouped_query(num_groups=4).index_by_name["q"].tex == r"H\,/\,G"
    assert grouped_query(num_heads=12, num_groups=4).sizes["q"] == 3


def test_single_head_attention_with_two_heads_is_refused() -> None:
    assert single_head(num_heads=1) == single_head()
    with pytest.raises(FamilyError, match=r"single-head: H .* must be 1, got 2; use multi-head"):
        single_head(num_heads=2)


def test_heads_that_groups_do_not_divide_are_refused() -> None:
    with pytest.raises(FamilyError, match=r"must be a multiple of G \(groups\), got H=12 and G=5"):
        grouped_query(num_heads=12, num_groups=5)
    with pytest.raises(FamilyError, match="got H=12 and G=0"):
        grouped_query(num_heads=12, num_groups=0)
