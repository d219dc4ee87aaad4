"""Builders for well-known diagrams, and the table that gives them names."""

from rankscope.diagrams.families.attention import (
    cp_attention,
    grouped_query,
    multi_head,
    single_head,
    tunable_attention,
)
from rankscope.diagrams.families.catalogue import FAMILIES, build_family, family
from rankscope.diagrams.families.settings import Family, Setting
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
    with_batch,
    with_causal_mask,
)

__all__ = [
    "FAMILIES",
    "ConvolutionSizes",
    "Family",
    "Setting",
    "build_family",
    "cp",
    "cp_attention",
    "family",
    "grouped_query",
    "hierarchical_tucker",
    "matrix_product",
    "multi_head",
    "multilayer_perceptron",
    "outer_product",
    "pure_tensor",
    "single_head",
    "sum_of_pure_tensors",
    "tensor_ring",
    "tensor_train",
    "tensor_train_matrix",
    "tucker",
    "tucker2_convolution",
    "tunable_attention",
    "with_batch",
    "with_causal_mask",
]
