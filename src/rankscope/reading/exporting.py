"""The program that `torch.export` makes of a module and an example, or a refusal."""

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.modules import transformer
from torch.nn.utils.rnn import PackedSequence

from rankscope.errors import RequestError, SizeError, UnsupportedModuleError
from rankscope.modes import inference
from rankscope.reading.functional import as_functional

Shape = tuple[int, ...]
Example = Tensor | Shape | Sequence[Any] | Mapping[str, Any]

log = logging.getLogger(__name__)


def exported(
    module: nn.Module, example: Example, *, free_batch: bool = True
) -> tuple[ExportedProgram, bool]:
    """The program that torch exports of a module, and whether its batch is free.

    Args:
        module: is not changed, and is exported in inference mode.
        example: as in `trace`.
        free_batch: as in `trace`.

    Raises:
        UnsupportedModuleError: if torch cannot export it, with torch's reason.
        SizeError: if the module does not take the example.
        RequestError: if the example is none of these.
    """
    arguments, options = _call_of(module, example)
    if _is_shapes(example) and not _takes(module, arguments):
        # Tables are looked up by integers; 0 and 1 are in every table.
        integers = tuple(part.round().long() for part in arguments)
        arguments = integers if _takes(module, integers) else arguments
    free = _free_sizes(module, arguments, options)
    with inference(module), torch.no_grad(), _quiet(), _masks_as_they_are(), _no_cache(module):
        if free_batch:
            try:
                return _export(module, arguments, options, free), True
            except Exception as error:  # noqa: BLE001 - torch raises many kinds; the next says why
                log.debug("no free batch: %s", error)
        try:
            return _export(module, arguments, options, None), False
        except Exception as error:
            raise _refused(module, arguments, options, error) from error


def _call_of(module: nn.Module, example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of `forward`."""
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)) and example:
        if all(isinstance(size, int) for size in example):
            shape: Shape = tuple(int(size) for size in example)
            return (_random(module, shape),), {}
        parts: Sequence[Any] = example
        return tuple(_random(module, tuple(p)) if _is_shape(p) else p for p in parts), {}
    raise RequestError(
        "trace: the example must be a tensor, a tuple or a dict of tensors, or shapes; got "
        f"{type(example).__name__}."
    )


def _is_shape(part: object) -> bool:
    return (
        isinstance(part, (tuple, list))
        and bool(part)
        and all(isinstance(size, int) for size in part)
    )


def _is_shapes(example: Example) -> bool:
    is_list = isinstance(example, (tuple, list))
    return is_list and (_is_shape(example) or all(_is_shape(part) for part in example))


def _takes(module: nn.Module, arguments: tuple[Any, ...]) -> bool:
    """Whether a module runs on some arguments."""
    with inference(module), torch.no_grad():
        try:
            module(*arguments)
        except Exception:  # noqa: BLE001 - a user's module may raise anything
            return False
    return True


def _random(module: nn.Module, shape: Shape) -> Tensor:
    for size in shape:
        if size < 1:
            raise SizeError(f"trace: an input of shape {shape} has a size below 1.")
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=generator).to(like)


def _free_sizes(module: nn.Module, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What may vary: the first size of every tensor, by the names of `forward` if there are any."""
    given = tuple(_free(part) for part in arguments)
    if not options:
        return given
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, given, strict=False)) | {n: _free(part) for n, part in options.items()}


def _free(part: object) -> Any:
    # torch fixes a size of 1, so that only larger ones may vary.
    if isinstance(part, Tensor):
        return {0: Dim.AUTO} if part.ndim and part.shape[0] > 1 else {}
    if isinstance(part, PackedSequence):
        raise UnsupportedModuleError(
            f"trace: torch cannot export a packed sequence, got one of {len(part.batch_sizes)} "
            "steps; pad it to a tensor."
        )
    if isinstance(part, (list, tuple)):
        return type(part)(_free(each) for each in part)
    if isinstance(part, Mapping):
        return {name: _free(each) for name, each in part.items()}
    return None


def _export(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], free: Any
) -> ExportedProgram:
    program = torch.export.export(module, arguments, options, dynamic_shapes=free, strict=False)
    return as_functional(program)


def _refused(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], error: Exception
) -> Exception:
    """Why a module could not be exported: it does not run at all, or only not without numbers."""
    who = type(module).__name__
    try:
        module(*arguments, **options)
    except Exception as failure:  # noqa: BLE001 - a user's module may raise anything
        given = ", ".join(
            str(tuple(part.shape)) if isinstance(part, Tensor) else repr(part)
            for part in (*arguments, *options.values())
        )
        return SizeError(f"trace: {who} cannot be run on {given}: {_first_line(failure)}")
    return UnsupportedModuleError(f"trace: torch cannot export {who}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and log lines that torch.export has for its own developers."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _masks_as_they_are() -> Iterator[None]:
    """Leave out the question of PyTorch's transformers whether a mask is causal.

    The answer depends on numbers, so that torch could not export it. It is only a hint: the mask
    is applied either way.
    """
    original = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = original


@contextmanager
def _no_cache(module: nn.Module) -> Iterator[None]:
    """Leave out the keys and values that language models return for the next call.

    They are no tensors, so that torch could not export them, and no other output depends on them.
    """
    held: list[Any] = [getattr(inner, "config", None) for inner in module.modules()]
    changed = [one for one in held if getattr(one, "use_cache", None) is True]
    for configuration in changed:
        configuration.use_cache = False
    try:
        yield
    finally:
        for configuration in changed:
            configuration.use_cache = True
