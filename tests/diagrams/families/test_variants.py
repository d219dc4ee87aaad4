from dataclasses import replace

import pytest

from rankscope.diagrams import Function, IndexKind, Region
from rankscope.diagrams.families import matrix_product, multi_head, with_batch, with_causal_mask
from rankscope.errors import DiagramError


def test_a_batch_index_is_on_data_and_output_only() -> None:
    diagram = with_batch(multi_head())
    assert diagram.structure.owners["b"] == ("Xq", "Xk", "Xv")
    assert diagram.output == ("b", "n", "o")
    assert diagram.index_by_name["b"].kind is IndexKind.BATCH


def test_a_diagram_without_data_has_no_batch() -> None:
    with pytest.raises(DiagramError, match="'matrix-product' has no data node"):
        with_batch(matrix_product())


def test_a_second_batch_index_is_refused() -> None:
    with pytest.raises(DiagramError, match="2 times the index 'b'"):
        with_batch(with_batch(multi_head()))


def test_a_mask_needs_a_softmax_over_its_key() -> None:
    with pytest.raises(DiagramError, match="has no region that normalizes over index 'n'"):
        with_causal_mask(multi_head(), query="m", key="n")


def test_a_mask_leaves_other_regions_alone() -> None:
    plain = multi_head()
    value = Region("V", ("WV", "Xv"), Function("relu"))
    masked = with_causal_mask(replace(plain, regions=(*plain.regions, value)))
    assert [region.causal for region in masked.regions] == [("n", "m"), None]


def test_a_mask_needs_a_query_that_leaves_the_region() -> None:
    with pytest.raises(DiagramError, match="index 'f', which does not leave the region"):
        with_causal_mask(multi_head(), query="f")
