import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from rankscope.diagrams import Diagram, Sum, diagrams_of, families
from rankscope.diagrams.cost import cost
from rankscope.diagrams.families import FAMILIES, Family, build_family, family
from rankscope.drawing import outline
from rankscope.errors import FamilyError

# Others script against these: a change here breaks them.
PROMISED = {
    "matrix-product": "I J K",
    "outer-product": "I J",
    "cp": "order size rank",
    "tucker": "order size rank",
    "tensor-train": "order size rank",
    "tensor-ring": "order size rank",
    "hierarchical-tucker": "order size rank",
    "tt-matrix": "order size rank out",
    "tucker2-conv": "S T k R1 R2 H W stride padding",
    "single-head": "N M F H D",
    "multi-head": "N M F H D",
    "grouped-query": "N M F H D G",
    "cp-attention": "N M F H D R",
    "tunable-attention": "N M F H D R",
    "mlp": "widths",
    "pure-tensor": "order size",
    "sum-of-pure-tensors": "count order size",
}


@pytest.mark.parametrize(("name", "symbols"), PROMISED.items())
def test_promised_families_have_their_promised_settings(name: str, symbols: str) -> None:
    settings = {setting.name for setting in FAMILIES[name].settings}
    assert set(symbols.split()) <= settings
    assert settings - set(symbols.split()) <= ({"B", "F"} if name == "mlp" else {"B"})


def test_no_family_is_unpromised() -> None:
    assert set(FAMILIES) == set(PROMISED)


@pytest.mark.parametrize("found", FAMILIES.values(), ids=FAMILIES)
def test_every_family_builds_from_nothing_and_from_any_one_setting(found: Family) -> None:
    plain = build_family(found.name, {})
    assert plain.name == found.name
    assert plain.title
    assert found.summary.endswith(".")
    for setting in found.settings:
        value = "5,3" if setting.name == "widths" else "1" if setting.name == "H" else "3"
        assert build_family(found.name, {setting.name: value}).name == found.name


@pytest.mark.parametrize("found", FAMILIES.values(), ids=FAMILIES)
def test_a_size_that_is_set_reaches_the_diagram(found: Family) -> None:
    structural = {"order", "count", "stride", "padding", "H", "widths"}
    for setting in found.settings:
        if setting.name in structural:
            continue
        plain = build_family(found.name, {})
        assert build_family(found.name, {setting.name: 3}) != plain, setting.name


@pytest.mark.parametrize("found", FAMILIES.values(), ids=FAMILIES)
def test_every_label_is_tex_that_can_be_drawn(found: Family) -> None:
    for diagram in diagrams_of(build_family(found.name, {})):
        labels = [index.tex for index in diagram.indices] + [node.tex for node in diagram.nodes]
        for label in labels:
            assert outline(f"${label}$", 20.0).commands, label


def test_symbols_of_a_family_are_the_settings() -> None:
    sizes = {"N": 5, "M": 6, "F": 7, "H": 2, "D": 3}
    diagram = build_family("multi-head", {name: str(size) for name, size in sizes.items()})
    assert isinstance(diagram, Diagram)
    assert diagram.symbols == sizes
    assert family("multi-head", N=5, M=6, F=7, H=2, D=3) == diagram


def test_the_convolution_family_reads_all_its_settings() -> None:
    diagram = build_family(
        "tucker2-conv",
        {"S": 4, "T": 5, "k": "3", "R1": 2, "R2": 3, "H": 8, "W": 9, "stride": 2, "padding": 1},
    )
    assert isinstance(diagram, Diagram)
    known = {"S": 4, "T": 5, "R1": 2, "R2": 3, "H": 8, "W": 9, "k": 3, "H'": 4, "W'": 5}
    assert diagram.symbols == known | {"B": 1}


def test_a_sum_of_pure_tensors_is_a_sum() -> None:
    total = build_family("sum-of-pure-tensors", {"count": "4", "order": 2})
    assert isinstance(total, Sum)
    assert len(total.terms) == 4


@pytest.mark.parametrize("found", FAMILIES.values(), ids=FAMILIES)
def test_every_symbol_of_a_picture_can_be_set_on_its_own(found: Family) -> None:
    for symbol in diagrams_of(build_family(found.name, {}))[0].symbols:
        for diagram in diagrams_of(build_family(found.name, {symbol: "4"})):
            assert diagram.symbols[symbol] == 4


@pytest.mark.parametrize("found", FAMILIES.values(), ids=FAMILIES)
def test_a_family_with_all_its_sizes_has_a_price(
    count_parameters: Callable[[Diagram], int], found: Family
) -> None:
    own = {"H": 1} if found.name == "single-head" else {"widths": "7,6,5"}
    values = {setting.name: own.get(setting.name, 4) for setting in found.settings}
    if found.name == "mlp":
        del values["F"]
    body = build_family(found.name, values)
    expected = sum(count_parameters(diagram) for diagram in diagrams_of(body))
    assert cost(body).parameters == expected


def test_multi_head_attention_has_its_promised_price() -> None:
    price = cost(family("multi-head", N=512, M=512, F=768, H=12, D=64))
    assert price.parameters == 4 * 768 * 64 * 12 == 2_359_296
    assert price.largest_intermediate == 12 * 512 * 512 == 3_145_728


def test_a_symbol_may_repeat_what_a_setting_says() -> None:
    diagram = build_family("cp", {"size": 5, "I_2": 5})
    assert diagram == build_family("cp", {"size": 5})


def test_an_unknown_family_is_refused_with_the_nearest_and_all_others() -> None:
    with pytest.raises(FamilyError, match="no family 'tensor-trian'") as caught:
        build_family("tensor-trian", {})
    assert "Did you mean 'tensor-train'?" in str(caught.value)
    assert all(name in str(caught.value) for name in FAMILIES)
    with pytest.raises(FamilyError, match=r"mlp\.$"):
        build_family("zzz", {})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mlp", {"depth": 3}, "mlp: there is no setting 'depth'. Its settings are: widths, F, B."),
        (
            "multi-head",
            {"H": "x"},
            "multi-head: H (number of heads) must be a positive integer, got 'x'.",
        ),
        (
            "tensor-train",
            {"order": 4, "rank": "2,3"},
            "tensor-train: rank (bond dimensions) must be one integer or 3 of them, one for each",
        ),
        ("mlp", {"widths": 784}, "mlp: widths must be at least 2 integers"),
        ("single-head", {"H": 2}, "single-head: H (number of heads) must be 1, got 2"),
        ("cp", {"rank": 3, "R": 4}, "cp: R has two sizes: 3 by other settings, and 4."),
        ("cp", {"I_2": 0}, "cp: I_2 (size of a leg) must be a positive integer, got 0."),
        ("cp", {"order": 2, "I_3": 4}, "cp: there is no setting 'I_3'."),
        ("mlp", {"F": 8, "4F": 16}, "mlp: 4F has two sizes: 32 by other settings, and 16."),
        ("cp", {"rank": "2,3"}, "cp: rank (CP rank) must be a positive integer, got '2,3'."),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_allowed_ones(
    name: str, settings: dict[str, str | int], message: str
) -> None:
    with pytest.raises(FamilyError, match="^" + re.escape(message)) as caught:
        build_family(name, settings)
    allowed = ", ".join(setting.name for setting in FAMILIES[name].settings)
    assert str(caught.value).endswith(f" Its settings are: {allowed}.")


def test_every_public_name_is_real_and_documented() -> None:
    assert all(getattr(families, name).__doc__ for name in families.__all__)


def test_families_and_einsums_need_no_torch() -> None:
    program = (
        "import sys, rankscope.diagrams.families, rankscope.diagrams.einsum; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
