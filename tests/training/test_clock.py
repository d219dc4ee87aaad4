import time

import torch

from rankscope.training.history import working_seconds


def test_waiting_is_no_work() -> None:
    before = working_seconds()
    time.sleep(0.2)
    waited = working_seconds() - before
    assert 0 <= waited < 0.1


def test_processor_time_is_shared_by_the_threads() -> None:
    threads = torch.get_num_threads()
    assert working_seconds() * threads <= time.process_time()
