from typing import Any

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.layers import NUM_QUANTILES, LayerDiagrams, layer_data


def of(audit: Audit) -> dict[str, Any]:
    return layer_data(audit, LayerDiagrams(keys=(None,) * len(audit.tensors)))


def test_every_matrix_has_a_random_twin(transformer: Audit) -> None:
    found = of(transformer)
    keys = {matrix["reference"] for row in found["tensors"] for matrix in row["matrices"]}
    assert keys == {"160x48", "48x48", "48x48x12", "192x48", "48x192"} == set(found["references"])
    assert {len(curve) for curve in found["references"].values()} == {NUM_QUANTILES}


def test_tensors_stand_in_their_order_with_all_their_numbers(transformer: Audit) -> None:
    found = of(transformer)["tensors"]
    assert [row["name"] for row in found] == [row.name for row in transformer.tensors]
    assert found[1]["matrices"][0]["stable_rank"] == transformer.tensors[1].matrices[0].stable_rank
    assert len(found[1]["matrices"]) == 5


def test_a_configuration_alone_has_no_tensors(shape_only: Audit) -> None:
    assert of(shape_only) == {"tensors": [], "references": {}, "problem": None}
