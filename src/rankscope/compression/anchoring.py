r"""Weights to factorize so that a compressed model gives the original's outputs.

The inputs x' of a weight in the compressed model are not those, x, of the original one: earlier
weights already err. The factors are therefore fitted to the original outputs from the inputs that
they really get. Without a bound on the rank,

.. math:: \min_M E \|W x - M x'\|^2 \quad\text{is reached by}\quad
          M = W\, E[x x'^T]\, E[x' x'^T]^{-1}

and the best factors are those of M in the norm of E[x' x'ᵀ] (the difference is orthogonal to x').
Of the two inputs half of each is taken, x̄ = (x + x') / 2 in place of x: a full correction follows
the calibration data too closely.

    anchoring = Anchoring(model, names, batches, ridge=1e-6)
    for level in anchoring.levels:                    # modules that read the same input, in order
        for name, target in anchoring.targets(level).items():
            layer = factorize(target.module, rows, target.error_norms)
            anchoring.put(name, layer.to_dense())
"""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.compression.calibration import InputObserver, bound_arguments, observer_of
from rankscope.compression.chain import Chain, find_chain
from rankscope.compression.scores import Batch, ErrorNorm, Products, SecondMoments, run
from rankscope.compression.sites import parts_of
from rankscope.modes import inference

SHARE = 0.5  # of the original inputs in x̄


@dataclass(frozen=True, eq=False)
class Target:
    """A module whose weights are to be factorized, and the norms of their errors, by part."""

    module: nn.Module
    error_norms: dict[str, ErrorNorm | None]


class Anchoring:
    """An original model and one that becomes its compressed form, module by module.

    Args:
        model: the original; left as it is.
        names: of the modules that are to be compressed.
        batches: inputs as the model takes them.
        ridge: see `Activations`.
        share: of the original inputs in x̄; 0 fits to the outputs of the original weights on the
            inputs of the compressed model.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        batches: Sequence[Batch],
        *,
        ridge: float,
        share: float = SHARE,
    ) -> None:
        self._batches = list(batches)
        self._ridge = ridge
        self._share = share
        student = copy.deepcopy(model)
        with torch.no_grad(), inference(model), inference(student):
            self._original = _Side(model, self._batches)
            self._compressed = _Side(student, self._batches)
            self.levels, self._once = _levels(model, names, self._batches[0])

    def targets(self, level: Sequence[str]) -> dict[str, Target]:
        """The modules of one level as they should be factorized."""
        sides = (self._original, self._compressed)
        pairs: dict[tuple[str, str], _Pair] = {}
        products = Products(), Products()
        with torch.no_grad(), inference(sides[0].model), inference(sides[1].model):
            for number in range(len(self._batches)):
                seen = [side.inputs(level, number, self._once) for side in sides]
                for key, compressed in seen[1].items():
                    pair = pairs.setdefault(key, _Pair())
                    pair.add(seen[0].get(key, []), compressed, products)
        return {name: self._target(name, pairs) for name in level}

    def put(self, name: str, dense: nn.Module) -> None:
        """Say what the weights of a module have become."""
        rebuilt = {part.name: part.weight for part in parts_of(dense)}
        with torch.no_grad():
            for part in parts_of(self._compressed.model.get_submodule(name)):
                part.weight.copy_(rebuilt[part.name])

    def _target(self, name: str, pairs: Mapping[tuple[str, str], "_Pair"]) -> Target:
        module = copy.deepcopy(self._original.model.get_submodule(name))
        error_norms: dict[str, ErrorNorm | None] = {}
        with torch.no_grad():
            for part in parts_of(module):
                pair = pairs.get((name, part.name))
                factor = None if pair is None else pair.factor(self._ridge, who=name)
                if pair is None or factor is None:
                    continue
                factor = factor[0] if len(factor) == 1 else factor
                error_norms[part.name] = ErrorNorm(factor=factor)
                correction = pair.correction(self._ridge, self._share)
                part.weight.copy_(_times_inputs(part.weight, correction))
        return Target(module, error_norms)


class _AllSeen(Exception):
    """No error, only a way out of a forward pass."""


class _Side:
    """One of the two models, with the states before the block that is being compressed."""

    def __init__(self, model: nn.Module, batches: Sequence[Batch]) -> None:
        self.model = model
        self._batches = batches
        self._chain = find_chain(model, batches[0])
        self._block = 0
        self._states: list[Tensor] = []

    def inputs(
        self, names: Sequence[str], number: int, once: Collection[str]
    ) -> dict[tuple[str, str], list[Tensor]]:
        """Vectors that enter each part of some modules on a batch, call by call.

        Args:
            names: of the modules.
            number: of the batch.
            once: names of modules that are run once; nothing is run after the last of these.
        """
        seen: dict[tuple[str, str], list[Tensor]] = {}
        self._enter_block_of(names[0])
        with ExitStack() as stack:
            waiting = set(names)
            for name in names:
                module = self.model.get_submodule(name)
                observer = observer_of(module)
                if isinstance(observer, InputObserver):
                    hook = _seeing(name, observer, seen, waiting if waiting <= set(once) else None)
                    handle = module.register_forward_hook(hook, with_kwargs=True)
                    stack.callback(handle.remove)
            with suppress(_AllSeen):
                self._run(names[0], number)
        return seen

    def _enter_block_of(self, name: str) -> None:
        block = None if self._chain is None else self._chain.block_of(name)
        if self._chain is not None and block is not None:
            self._enter(self._chain, block)

    def _run(self, name: str, number: int) -> None:
        """Run the block that a module lies in, and nothing else where that can be."""
        batch = self._batches[number]
        chain = self._chain
        block = None if chain is None else chain.block_of(name)
        if chain is None or block is None:
            run(self.model, batch)
            return
        state = self._states[number]
        if block + 1 < len(chain.names):
            chain.state_before(block + 1, batch, (block, state))
        else:
            chain.run_from(block, state, batch)

    def _enter(self, chain: Chain, block: int) -> None:
        """Move on to a block: the ones before it are final, and so are the states after them."""
        if self._states and block == self._block:
            return
        known: list[tuple[int, Tensor] | None] = [(self._block, state) for state in self._states]
        known = known or [None] * len(self._batches)
        self._states = [
            chain.state_before(block, batch, start)
            for batch, start in zip(self._batches, known, strict=True)
        ]
        self._block = block


class _Pair:
    """Moments of the inputs of one weight in both models, batch by batch."""

    def __init__(self) -> None:
        self._compressed: SecondMoments | None = None
        self._cross: Tensor | None = None
        self._count = 0
        self._is_paired = True

    def add(
        self,
        original: Sequence[Tensor],
        compressed: Sequence[Tensor],
        products: tuple[Products, Products],
    ) -> None:
        """Count in the vectors (groups, count, size) of all calls on one batch."""
        for vectors in compressed:
            groups, _, size = vectors.shape
            if self._compressed is None:
                self._compressed = SecondMoments(size, groups)
            self._compressed.add(vectors, products[0])
        # Where samples choose their weights (experts), the two models need not choose alike.
        shapes = [[vectors.shape for vectors in side] for side in (original, compressed)]
        self._is_paired = self._is_paired and shapes[0] == shapes[1]
        if not self._is_paired:
            return
        for first, second in zip(original, compressed, strict=True):
            product = products[1].of(first, second)
            self._cross = product if self._cross is None else self._cross + product
            self._count += first.shape[1]

    def factor(self, ridge: float, *, who: str) -> Tensor | None:
        """Of E[x' x'ᵀ], see `SecondMoments.factor`."""
        return None if self._compressed is None else self._compressed.factor(ridge, who=who)

    def correction(self, ridge: float, share: float) -> Tensor:
        """E[x̄ x'ᵀ] E[x' x'ᵀ]⁻¹ with the ridge in both, (groups, size, size)."""
        assert self._compressed is not None
        moments = self._compressed.mean()
        size = moments.shape[-1]
        scale = moments.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
        added = ridge * scale[:, None, None] * torch.eye(size, dtype=moments.dtype)
        if not self._is_paired or self._cross is None:
            return torch.eye(size, dtype=moments.dtype).expand_as(moments)
        mixed = share * self._cross / max(self._count, 1) + (1 - share) * moments
        solved: Tensor = torch.linalg.solve(moments + added, mixed + added, left=False)
        return solved


def _times_inputs(weight: Tensor, matrices: Tensor) -> Tensor:
    """W M at the place of the inputs, (groups, out_size, in_size, *kernel)."""
    last = weight.movedim(2, -1)
    product = last.flatten(1, -2).to(matrices.dtype) @ matrices.to(weight.device)
    return product.reshape(last.shape).movedim(-1, 2)


def _seeing(
    name: str,
    observer: InputObserver,
    seen: dict[tuple[str, str], list[Tensor]],
    waiting: set[str] | None,
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object], object], None]:
    def see(
        module: nn.Module, given: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        del output
        for part, vectors in observer.vectors(bound_arguments(module, given, named)):
            seen.setdefault((name, part), []).append(vectors)
        if waiting is not None:
            waiting.discard(name)
            if not waiting:
                raise _AllSeen

    return see


def _levels(
    model: nn.Module, names: Sequence[str], batch: Batch
) -> tuple[list[list[str]], set[str]]:
    """Modules in the order in which they run; those that follow each other on one input together.

    Modules that the batch does not reach come last. Also the names of those that are run once.
    """
    order: dict[str, object] = {}
    counts: Counter[str] = Counter()

    def record(name: str) -> Callable[[nn.Module, tuple[object, ...], dict[str, object]], None]:
        def note(module: nn.Module, given: tuple[object, ...], named: dict[str, object]) -> None:
            del module
            counts[name] += 1
            first = next((x for x in (*given, *named.values()) if isinstance(x, Tensor)), None)
            order.setdefault(name, None if first is None else (first.data_ptr(), first.shape))
            kept.append(first)  # or its memory could be another tensor's by the next call

        return note

    kept: list[Tensor | None] = []
    with ExitStack() as stack:
        for name in names:
            module = model.get_submodule(name)
            handle = module.register_forward_pre_hook(record(name), with_kwargs=True)
            stack.callback(handle.remove)
        run(model, batch)
    levels: list[list[str]] = []
    before: object = None
    for name, given in order.items():
        if levels and given is not None and given == before:
            levels[-1].append(name)
        else:
            levels.append([name])
        before = given
    unreached = [[name] for name in names if name not in order]
    return levels + unreached, {name for name, count in counts.items() if count == 1}
