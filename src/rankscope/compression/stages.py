"""A model as a row of stages: which modules end them, and what trains in each."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import CompressionError
from rankscope.modes import inference


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of a model.

    Args:
        name: of the module whose output is the stage's.
        parameters: of everything that runs in it, by name; none belongs to two stages.
    """

    name: str
    parameters: dict[str, nn.Parameter]

    @property
    def outside(self) -> list[str]:
        """What trains in the stage, but not in the module that it is named after."""
        return [
            name
            for name, value in self.parameters.items()
            if value.requires_grad and not name.startswith(f"{self.name}.")
        ]


class _Reached(Exception):
    """No error, only a way out of a forward pass."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output


def stages_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the stages that a model seems to be built of.

    These are modules of one class, in one parent, whose names differ only in a number at the end
    (`layer1`, `layer2`, ... or `blocks.0`, `blocks.1`, ...); of several such rows the one with the
    most parameters, and the outermost of equal ones.

    Example:
        >>> stages_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        ('0', '2')

    Raises:
        CompressionError: if there is no such row; its stages have to be named then.
    """
    rows: dict[tuple[str, type], list[tuple[str, nn.Module]]] = defaultdict(list)
    for name, module in model.named_modules():
        stem = re.sub(r"\d+$", "", name)
        if stem != name and any(True for _ in module.parameters()):
            rows[stem, type(module)].append((name, module))
    candidates = [row for row in rows.values() if len(row) > 1]
    if not candidates:
        raise CompressionError(
            f"{type(model).__name__} has no row of modules of one class that are numbered, such as "
            "layer1, layer2, ...; name its stages."
        )
    # max takes the first of equal ones, and parents come before their children.
    return tuple(name for name, _ in max(candidates, key=_num_parameters))


def _num_parameters(row: Sequence[tuple[str, nn.Module]]) -> int:
    parameters = {parameter for _, module in row for parameter in module.parameters()}
    return sum(parameter.numel() for parameter in parameters)


def output_of_stage(model: nn.Module, stage: str, inputs: Tensor) -> Tensor:
    """What the model has computed when the stage ends; nothing after it is run.

    Of a module that returns several things, such as a recurrent layer, it is the first.

    Raises:
        CompressionError: if the stage is not reached, or does not give a tensor.
    """

    def leave(module: nn.Module, arguments: object, output: object) -> None:
        del module, arguments
        raise _Reached(output)

    handle = _module(model, stage).register_forward_hook(leave)
    try:
        model(inputs)
    except _Reached as reached:
        return _tensor(stage, reached.output)
    finally:
        handle.remove()
    raise _unreached_error(model, stage, inputs)


def input_of_stage(model: nn.Module, stage: str, inputs: Tensor) -> Tensor:
    """What the module of a stage is called with; neither it nor anything after it is run.

    Raises:
        CompressionError: if it is not reached, or is called with anything but one tensor.
    """

    def leave(module: nn.Module, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        del module
        raise _Reached((*arguments, *options.values()))

    handle = _module(model, stage).register_forward_pre_hook(leave, with_kwargs=True)
    try:
        model(inputs)
    except _Reached as reached:
        given = reached.output
    else:
        raise _unreached_error(model, stage, inputs)
    finally:
        handle.remove()
    assert isinstance(given, tuple), "arguments are a tuple"
    if len(given) == 1 and isinstance(given[0], Tensor):
        return given[0]
    raise CompressionError(
        f"The stage {stage!r} must be called with one tensor to be run alone, but it is given "
        f"{len(given)} things; fit it without keeping."
    )


def split_into_stages(model: nn.Module, names: Sequence[str], inputs: Tensor) -> tuple[Stage, ...]:
    """Which parameters run in which stage, found by one forward pass.

    Raises:
        CompressionError: if there are no stages, or one of them is unknown, is not run exactly
            once, runs before the one named before it, or has nothing to train.
    """
    if not names:
        raise CompressionError("Wanted at least 1 stage, got 0; see stages_of for a proposal.")
    order = _order_of_ends(model, inputs)
    for name in names:
        _module(model, name)
        if order.count(name) != 1:
            raise CompressionError(
                f"The stage {name!r} must be run once in a forward pass, but it is run "
                f"{order.count(name)} times; name modules that are."
            )
    stages: list[Stage] = []
    names_of = {parameter: name for name, parameter in model.named_parameters()}
    start = 0
    for name in names:
        stop = order.index(name) + 1
        if stop <= start:
            raise CompressionError(
                f"The stage {name!r} ends before the one named before it; the order in which they "
                f"end is {', '.join(other for other in order if other in names)}."
            )
        # A module that ends here may have begun in an earlier stage: what trained there is gone.
        parameters = {
            names_of.pop(parameter): parameter
            for module in order[start:stop]
            for parameter in model.get_submodule(module).parameters()
            if parameter in names_of
        }
        if not any(parameter.requires_grad for parameter in parameters.values()):
            raise CompressionError(
                f"The stage {name!r} has {len(parameters)} parameters, of which 0 can be trained "
                "(quantized weights cannot: repair the model first, quantize it then)."
            )
        stages.append(Stage(name, parameters))
        start = stop
    return tuple(stages)


def _unreached_error(model: nn.Module, stage: str, inputs: Tensor) -> CompressionError:
    return CompressionError(
        f"The stage {stage!r} is not reached when {type(model).__name__} is run on inputs of shape "
        f"{tuple(inputs.shape)}; name modules that are."
    )


def _order_of_ends(model: nn.Module, inputs: Tensor) -> list[str]:
    """The names of all modules in the order in which they end, as often as they do.

    Hooks, not the trace: a module that computes nothing, such as Identity, ends a stage too, and
    models that torch cannot export are repaired by stages as well.
    """
    order: list[str] = []

    def record(name: str) -> torch.utils.hooks.RemovableHandle:
        return model.get_submodule(name).register_forward_hook(
            lambda module, arguments, output: order.append(name)
        )

    handles = [record(name) for name, _ in model.named_modules() if name]
    try:
        with torch.no_grad(), inference(model):
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return order


def _module(model: nn.Module, name: str) -> nn.Module:
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if not name or name not in modules:
        shown = ", ".join(other for other, _ in model.named_children())
        raise CompressionError(
            f"{type(model).__name__} has no module {name!r}, which was to be a stage; it is built "
            f"of {shown or 'nothing'}."
        )
    return modules[name]


def _tensor(stage: str, output: object) -> Tensor:
    first = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(first, Tensor):
        raise CompressionError(
            f"The stage {stage!r} must give a tensor, or several of which the first is one, got a "
            f"{type(first).__name__}."
        )
    return first
