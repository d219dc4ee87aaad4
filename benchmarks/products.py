"""The matrix products that a computation is made of, and the time they take by themselves.

A convolution is the product of its patches with its kernel, one for each group; attention is the
products of queries with keys and of weights with values. What is left of a step's time beside its
products goes into calls, and into operations that read and write every number for little work.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timing import processor_seconds

aten = torch.ops.aten
_LEAST_SECONDS = 0.02  # that a product is repeated for, as the clock is coarse


class Product(NamedTuple):
    """`groups` products of a (rows, inner) with an (inner, columns) matrix."""

    groups: int
    rows: int
    inner: int
    columns: int

    @property
    def operations(self) -> int:
        """A multiply-add is two."""
        return 2 * math.prod(self)

    def seconds(self) -> float:
        """Processor time of torch's product of these sizes in float32."""
        first = torch.randn(self.groups, self.rows, self.inner)
        second = torch.randn(self.groups, self.inner, self.columns)
        if self.groups == 1:
            first, second = first[0], second[0]
        once = max(processor_seconds(lambda: first @ second), 1e-6)
        repeats = max(1, math.ceil(_LEAST_SECONDS / once))

        def repeated() -> None:
            for _ in range(repeats):
                first @ second

        return min(processor_seconds(repeated) for _ in range(3)) / repeats


def products_of(call: Callable[[], object]) -> Counter[Product]:
    """How often each product is computed in a call, backward passes included."""
    recorder = _Recorder()
    with recorder:
        call()
    return recorder.products


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: Counter[Product] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        read = _READERS.get(func.overloadpacket)
        if read is not None:
            self.products.update(read(*args))
        return func(*args, **(kwargs or {}))


def _matrices(first: Tensor, second: Tensor, *_: object) -> list[Product]:
    *counts, rows, inner = first.shape
    return [Product(math.prod(counts), rows, inner, second.shape[-1])]


def _added_to(_: Tensor, first: Tensor, second: Tensor, *__: object) -> list[Product]:
    return _matrices(first, second)


def _patches(weight: Tensor, outputs: Sequence[int], groups: int) -> Product:
    rows = outputs[0] * math.prod(outputs[2:])
    return Product(groups, rows, math.prod(weight.shape[1:]), weight.shape[0] // groups)


def _convolution(data: Tensor, weight: Tensor, _: object, *options: Any) -> list[Product]:
    stride, padding, dilation, is_transposed, _, groups = options
    assert not is_transposed, "no network here has transposed convolutions"
    places = [
        (size + 2 * pad - step * (kernel - 1) - 1) // stride + 1
        for size, pad, step, kernel, stride in zip(
            data.shape[2:], padding, dilation, weight.shape[2:], stride, strict=True
        )
    ]
    return [_patches(weight, (len(data), len(weight), *places), groups)]


def _convolution_backward(
    gradient: Tensor, _: Tensor, weight: Tensor, *options: Any
) -> list[Product]:
    groups, wanted = options[-2:]
    count, rows, inner, columns = _patches(weight, gradient.shape, groups)
    of_data = Product(count, rows, columns, inner)
    of_weight = Product(count, inner, rows, columns)
    return [
        product
        for product, is_wanted in zip((of_data, of_weight), wanted, strict=False)
        if is_wanted
    ]


def _attention(queries: Tensor, keys: Tensor, values: Tensor, *_: object) -> list[Product]:
    count, rows, size = math.prod(queries.shape[:-2]), queries.shape[-2], queries.shape[-1]
    columns = keys.shape[-2]
    return [Product(count, rows, size, columns), Product(count, rows, columns, values.shape[-1])]


def _attention_backward(
    _: Tensor, queries: Tensor, keys: Tensor, values: Tensor, *__: object
) -> list[Product]:
    count, rows, size = math.prod(queries.shape[:-2]), queries.shape[-2], queries.shape[-1]
    columns, value_size = keys.shape[-2], values.shape[-1]
    return [
        Product(count, rows, size, columns),  # the weights once more
        Product(count, columns, rows, value_size),  # gradient of the values
        Product(count, rows, value_size, columns),  # of the weights
        Product(count, rows, columns, size),  # of the queries
        Product(count, columns, rows, size),  # of the keys
    ]


_READERS: dict[object, Callable[..., list[Product]]] = {
    aten.mm: _matrices,
    aten.bmm: _matrices,
    aten.addmm: _added_to,
    aten.baddbmm: _added_to,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
