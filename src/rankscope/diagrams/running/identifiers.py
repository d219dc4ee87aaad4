"""Names of arrays as Python identifiers, the same in a module and in its source."""

import builtins
import keyword
import re
from collections.abc import Iterable

# Attributes of torch.nn.Module and of ours, which a parameter must not hide; a test compares
# this with the installed PyTorch. (Listed, because writing source must not import torch.)
MODULE_ATTRIBUTES = (
    "T_destination add_module apply array_names bfloat16 buffers call_super_init "
    "children compile cpu cuda double dump_patches eval extra_repr float forward "
    "get_buffer get_extra_state get_parameter get_submodule half input_names ipu "
    "load_state_dict modules mtia named_buffers named_children named_modules "
    "named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ "
    "schedule set_extra_state set_submodule share_memory state_dict to to_empty train "
    "training type xpu zero_grad"
)


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """For each name an identifier of its own: words of letters, digits and underscores.

    Example:
        >>> identifiers(["layers.0.weight", "layers_0_weight", "class", "X'"])
        {'layers.0.weight': 'layers_0_weight', 'layers_0_weight': 'layers_0_weight_2', \
'class': 'class_', "X'": 'X'}
    """
    reserved = (*MODULE_ATTRIBUTES.split(), *keyword.kwlist, *dir(builtins))
    used = dict.fromkeys(taken)
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "array"
        if plain[0].isdigit():
            plain = f"array_{plain}"
        if plain in reserved:
            plain = f"{plain}_"
        chosen, count = plain, 1
        while chosen in used:
            count += 1
            chosen = f"{plain.rstrip('_')}_{count}"
        used[chosen] = None
        found[name] = chosen
    return found
