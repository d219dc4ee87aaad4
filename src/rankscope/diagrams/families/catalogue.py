"""The families by name, as the command line knows them."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.attention import (
    cp_attention,
    grouped_query,
    multi_head,
    single_head,
    tunable_attention,
)
from rankscope.diagrams.families.settings import Family, Setting, Value
from rankscope.diagrams.families.tensors import (
    ConvolutionSizes,
    cp,
    hierarchical_tucker,
    matrix_product,
    multilayer_perceptron,
    outer_product,
    pure_tensor,
    sum_of_pure_tensors,
    tensor_ring,
    tensor_train,
    tensor_train_matrix,
    tucker,
    tucker2_convolution,
)
from rankscope.diagrams.network import Sum, diagrams_of
from rankscope.errors import FamilyError


def _tucker2(**sizes: Any) -> Diagram:
    return tucker2_convolution(ConvolutionSizes(**sizes))


_MOST_TENSORS = 1000
ORDER = Setting("order", "order", "number of legs", largest=_MOST_TENSORS)
SIZE = Setting("size", "sizes", "size of each leg", is_list=True)
BONDS = Setting("rank", "bond_dimensions", "size of each bond", is_list=True)
BATCH = Setting("B", "batch_size", "batch size, by default 1")
SEQUENCES = (
    Setting("N", "num_queries", "number of queries"),
    Setting("M", "num_keys", "number of keys"),
    Setting("F", "num_features", "number of features"),
    Setting("H", "num_heads", "number of heads"),
    Setting("D", "head_size", "features per head"),
)
RANK = Setting("R", "attention_rank", "number of attention maps, by default D times H")

# One visible table: a family that is not here has no name.
_ALL = (
    Family(
        "matrix-product",
        "Matrix product",
        "Two matrices that share one index, which is summed.",
        (
            Setting("I", "num_rows", "rows of A"),
            Setting("J", "num_inner", "columns of A, rows of B"),
            Setting("K", "num_columns", "columns of B"),
        ),
        matrix_product,
    ),
    Family(
        "outer-product",
        "Outer product",
        "Two vectors side by side: every product of an entry of each.",
        (
            Setting("I", "num_rows", "entries of a"),
            Setting("J", "num_columns", "entries of b"),
        ),
        outer_product,
    ),
    Family(
        "pure-tensor",
        "Pure tensor",
        "The outer product of any number of vectors: a tensor of CP rank one.",
        (ORDER, SIZE),
        pure_tensor,
    ),
    Family(
        "sum-of-pure-tensors",
        "Sum of pure tensors",
        "Pure tensors added: the CP decomposition, one term at a time.",
        (Setting("count", "num_terms", "number of terms", largest=_MOST_TENSORS), ORDER, SIZE),
        sum_of_pure_tensors,
    ),
    Family(
        "cp",
        "CP decomposition",
        "One matrix per leg, and one rank index that all of them share.",
        (ORDER, SIZE, Setting("rank", "cp_rank", "CP rank")),
        cp,
    ),
    Family(
        "tucker",
        "Tucker decomposition",
        "A small core with one matrix on each of its legs.",
        (ORDER, SIZE, Setting("rank", "tucker_ranks", "size of each core leg", is_list=True)),
        tucker,
    ),
    Family(
        "tucker2-conv",
        "Tucker-2 convolution layer",
        "A convolution between two matrices that shrink and widen its channels.",
        (
            Setting("S", "in_channels", "input channels"),
            Setting("T", "out_channels", "output channels"),
            Setting("k", "kernel_size", "kernel size", is_list=True),
            Setting("R1", "in_rank", "channels into the core"),
            Setting("R2", "out_rank", "channels out of the core"),
            Setting("H", "height", "input height"),
            Setting("W", "width", "input width"),
            Setting("stride", "stride", "stride", is_list=True),
            Setting("padding", "padding", "zeros on either side", smallest=0, is_list=True),
            BATCH,
        ),
        _tucker2,
    ),
    Family(
        "tensor-train",
        "Tensor train",
        "A row of cores, each with one leg, joined to its neighbours.",
        (ORDER, SIZE, replace(BONDS, alias="bond")),
        tensor_train,
    ),
    Family(
        "tt-matrix",
        "Tensor-train matrix",
        "A tensor train whose cores have two legs each: a matrix or a linear layer.",
        (
            ORDER,
            SIZE,
            Setting("out", "out_sizes", "size of each second leg", is_list=True),
            BONDS,
        ),
        tensor_train_matrix,
    ),
    Family(
        "tensor-ring",
        "Tensor ring",
        "A tensor train whose last core is joined to its first.",
        (ORDER, SIZE, BONDS),
        tensor_ring,
    ),
    Family(
        "hierarchical-tucker",
        "Hierarchical Tucker decomposition",
        "A balanced binary tree of small cores with a matrix at each leaf.",
        (ORDER, SIZE, BONDS),
        hierarchical_tucker,
    ),
    Family(
        "single-head",
        "Single-head attention",
        "Softmax of queries times keys, times values.",
        SEQUENCES,
        single_head,
    ),
    Family(
        "multi-head",
        "Multi-head attention",
        "One head index on all four weights, with a softmax barrier between them.",
        SEQUENCES,
        multi_head,
    ),
    Family(
        "grouped-query",
        "Grouped-query attention",
        "Multi-head attention whose query heads share fewer heads of keys and values.",
        (*SEQUENCES, Setting("G", "num_groups", "number of key and value heads")),
        grouped_query,
    ),
    Family(
        "cp-attention",
        "Attention in CP form",
        "One rank index on all four weights: as many attention maps as the rank.",
        (*SEQUENCES, RANK),
        cp_attention,
    ),
    Family(
        "tunable-attention",
        "Attention with a tunable core",
        "A learned core mixes score channels into attention maps.",
        (*SEQUENCES, RANK),
        tunable_attention,
    ),
    Family(
        "mlp",
        "Perceptron",
        "Matrices with a ReLU barrier after each but the last.",
        (
            Setting("widths", "widths", "width of every layer", is_list=True),
            Setting("F", "num_features", "number of features"),
            BATCH,
        ),
        multilayer_perceptron,
    ),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}


def build_family(name: str, settings: Mapping[str, str | Value]) -> Diagram | Sum:
    """Build a family from its settings; sizes that are not set stay symbols.

    A setting may also be a symbol of the picture, such as R_2, that is still without a size.

    Example:
        >>> build_family("tensor-train", {"order": 3, "rank": "2,4"}).sizes["r2"]
        4
        >>> build_family("tensor-train", {"order": 3, "R_2": 4}).sizes["r2"]
        4

    Raises:
        FamilyError: if the family or a setting is unknown, or a value does not fit.
        SizeError: if the sizes contradict each other.
    """
    if name not in FAMILIES:
        near = get_close_matches(name, FAMILIES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise FamilyError(
            f"There is no family {name!r}; choose one of: {', '.join(FAMILIES)}.{hint}"
        )
    chosen = FAMILIES[name]
    known = {setting.name: setting for setting in chosen.settings}
    try:
        settings = _without_aliases(chosen, settings)
        values = {
            known[word].keyword: known[word].read(value)
            for word, value in settings.items()
            if word in known
        }
        others = {word: value for word, value in settings.items() if word not in known}
        return _with_symbols(chosen.build(**values), others)
    except FamilyError as error:
        reason = str(error).removeprefix(f"{name}: ")
        raise FamilyError(f"{name}: {reason} Its settings are: {', '.join(known)}.") from error


def _without_aliases(chosen: Family, settings: Mapping[str, str | Value]) -> dict[str, str | Value]:
    names = {setting.alias: setting.name for setting in chosen.settings if setting.alias}
    for alias, name in names.items():
        if alias in settings and name in settings:
            raise FamilyError(f"{alias} is another word for {name}: give one of them.")
    return {names.get(word, word): value for word, value in settings.items()}


def _with_symbols(body: Diagram | Sum, settings: Mapping[str, str | Value]) -> Diagram | Sum:
    sizes: dict[str, int] = {}
    first = diagrams_of(body)[0]
    for word, value in settings.items():
        if word not in first.symbols:
            raise FamilyError(f"there is no setting {word!r}.")
        size = Setting(word, word, "size of a leg").read(value)
        assert isinstance(size, int), "only settings that are lists give more than one"
        before = first.symbols[word]
        if before not in (None, size):
            raise FamilyError(f"{word} has two sizes: {before} by other settings, and {size}.")
        sizes[word] = size
    if isinstance(body, Diagram):
        return body.with_sizes(**sizes)
    terms = (replace(term, diagram=term.diagram.with_sizes(**sizes)) for term in body.terms)
    return replace(body, terms=tuple(terms))


def family(name: str, /, **settings: str | Value) -> Diagram | Sum:
    """Build a family with its settings as keywords.

    Example:
        >>> family("multi-head", H=12, D=64).symbols["H"]
        12

    Raises:
        FamilyError: as `build_family`.
    """
    return build_family(name, settings)
