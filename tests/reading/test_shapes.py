from collections.abc import Callable

import pytest
from torch import Tensor, nn

from rankscope.diagrams.network import Network
from rankscope.reading import from_module
from rankscope.errors import UnsupportedModuleError

Check = Callable[..., Network]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Identity(), (2, 3)),
        (nn.Flatten(), (2, 3, 4)),
        (nn.Flatten(0, 1), (2, 3, 4)),
        (nn.Unflatten(1, (2, 3)), (4, 6)),
        (nn.Unflatten(-1, (3, 1, 2)), (4, 6)),
        (nn.Dropout(0.5), (2, 3)),
        (nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (4, 3))), (2, 6)),
    ],
    ids=str,
)
def test_a_module_that_moves_no_numbers_has_the_shape_of_pytorch(
    layer: nn.Module, shape: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(layer, shape)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dropout(0.1), nn.Dropout2d(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


def test_a_dropout_in_training_mode_is_refused_by_name() -> None:
    message = r"Net: first \(Dropout\): p=0.1 is random .*; second \(Dropout2d\): p=0.2 is random"
    with pytest.raises(UnsupportedModuleError, match=message):
        from_module(Net(), (2, 3, 4, 5))
