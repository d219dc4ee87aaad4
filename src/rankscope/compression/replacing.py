"""A copy of a model in which some modules are others."""

import copy
from collections.abc import Mapping

from torch import nn


def with_replaced(model: nn.Module, layers: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model with other modules under some names; the model itself stays as it is.

    Modules that are replaced are not copied. PyTorch's transformer layers are kept from the fast
    path of their eval mode, which would read the weights that are no longer there.

    Args:
        model: to copy.
        layers: by the name of the module whose place they take; the empty name is the model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> with_replaced(model, {"0": nn.Identity()})
        Sequential(
          (0): Identity()
          (1): ReLU()
        )
    """
    replacements: dict[int, object] = {
        id(model.get_submodule(name)): layer for name, layer in layers.items()
    }
    replaced = set(replacements)
    changed = {
        name
        for name, module in model.named_modules()
        if any(id(inner) in replaced for inner in module.modules())
    }
    copied = copy.deepcopy(model, replacements)
    for name, module in copied.named_modules():
        if name in changed and isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif name in changed and isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
    return copied
