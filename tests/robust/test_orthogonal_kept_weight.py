import copy
import pickle

import torch
from torch import Tensor

from rankscope.robust import KeptWeight


def test_it_is_built_again_only_when_a_source_differs() -> None:
    kept, source = KeptWeight(), torch.ones(2)
    calls: list[int] = []

    def build() -> Tensor:
        calls.append(1)
        return source.sum()

    assert kept.get([source], build) is kept.get([source.clone()], build)
    assert len(calls) == 1
    source.add_(1)
    assert float(kept.get([source], build)) == 4.0
    kept.get([source.double()], build)
    assert len(calls) == 3
    kept.drop()
    kept.get([source.double()], build)
    assert len(calls) == 4


def test_copies_and_saved_files_begin_empty() -> None:
    kept, weight = KeptWeight(), torch.ones(1)
    kept.get([], lambda: weight)
    for other in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert other.get([], lambda: torch.zeros(1)) is not weight
