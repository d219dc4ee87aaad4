"""Linear layers that may be dense or factorized: what layers made of several of them need."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.layers.formats.format import Window
from rankscope.layers.linear import FactorizedLinear

LinearLayer = nn.Linear | FactorizedLinear
_NO_WINDOW = Window()


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with copies of a weight and a bias."""
    # On "meta" nothing is allocated or drawn at random before the parameters are replaced.
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def dense_linear(module: LinearLayer) -> nn.Linear:
    """The dense layer that a linear layer, dense or factorized, stands for."""
    return module if isinstance(module, nn.Linear) else module.to_dense()


def check_names(who: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Refuse a choice for a weight that there is not.

    Raises:
        LayerError: with the first unknown name.
    """
    for name in given:
        if name not in known:
            raise LayerError(f"{who} has no weight {name!r}; choose among {', '.join(known)}.")


def prepared(module: LinearLayer) -> Callable[[Tensor], Tensor]:
    """The layer as a function that reads its cores once for all steps, and never builds them."""
    if isinstance(module, nn.Linear):
        return module
    cores, bias = module.cores.tensors(), module.bias

    def apply(inputs: Tensor) -> Tensor:
        outputs = module.format.apply(inputs, cores, module.shape, _NO_WINDOW)
        return outputs if bias is None else outputs + bias

    return apply
