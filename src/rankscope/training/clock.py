"""The time that work takes, whatever else the machine does."""

from time import process_time

import torch


def working_seconds() -> float:
    """Processor time of this process, over its number of threads.

    On a quiet machine that is the time on the wall; beside other work it is less, so that runs
    which are limited by it still compare.
    """
    return process_time() / torch.get_num_threads()
