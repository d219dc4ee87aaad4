"""LoRA of peft on a factorized linear layer: the cores stay, a small product is learned beside."""

import warnings
from typing import Any

from peft.tuners.lora import Linear

from rankscope.errors import CompressionError
from rankscope.factorize.linear import FactorizedLinear


class LoraFactorizedLinear(Linear):  # type: ignore[misc]
    """What peft puts in the place of a `FactorizedLinear`.

    Args:
        base_layer: whose outputs the adapter is added to.
        adapter_name: of the first adapter.
        options: as peft passes them on.
    """

    def __init__(self, base_layer: FactorizedLinear, adapter_name: str, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not know the class of the layer
            super().__init__(base_layer, adapter_name, **options)

    def merge(self, *options: object, **named: object) -> None:
        """Refused: the sum of two low ranks is no matrix of these cores.

        Raises:
            CompressionError: always.
        """
        del options, named
        base: FactorizedLinear = self.get_base_layer()
        raise CompressionError(
            f"LoRA cannot be merged into the cores of a layer {base.shape.sizes} at ranks "
            f"{base.ranks}: keep the adapter beside it, or merge into layer.to_dense()."
        )
