"""The explicit tensor train with equal cores whose odd-even matricization has a large rank."""

import numpy

from rankscope.architectures.sizes import require_sizes
from rankscope.architectures.tensor_train import TensorTrain
from rankscope.errors import SizeError
from rankscope.separation.measuring.split_function import Residues


def witness_cores(*, size: int, bond: int) -> tuple[Residues, Residues, Residues]:
    r"""First, inner and last core of Alkin's proof, of shapes (1, n, r), (r, n, r) and (r, n, 1).

    .. math:: G_1^{i \alpha} = [i = \alpha], \qquad G_d^{\alpha i} = [\alpha = i], \qquad
              G_k^{\alpha i \beta} =
              \begin{cases} [\alpha = i] [\beta = q + 1] & \alpha \le q \\
                            [i = \beta] & \alpha = q + 1 \\ 0 & \alpha > q + 1 \end{cases}

    with n = `size`, r = `bond` and q = min(n, r - 1). A word i_1 … i_d has the coefficient 1 if
    it is made of doubled letters ii, i ≤ q, and single letters q + 1, and 0 otherwise.

    For n < r only doubled letters occur: the odd-even matricization of even order is the identity.
    For n ≥ r it is unitriangular on the words in the letters 1..r: there is an even number of
    letters between two single ones, so they stand at odd and at even positions by turns, and the
    j-th of the column is never before the j-th of the row; if all are side by side, the column
    equals the row. Hence the rank is at least min(n, r)^(d/2), for these cores and therefore for
    almost all.

    Example:
        >>> first, inner, last = witness_cores(size=2, bond=3)
        >>> inner[2].tolist() == first[0].tolist()
        True

    Raises:
        SizeError: if a size is not positive.

    Reference:
        Alkin (2024), proof of the main theorem; the case n ≥ r is ours: docs/proofs.md, section 12.
    """
    require_sizes("witness_cores", size=size, bond=bond)
    num_doubled = min(size, bond - 1)
    same = numpy.eye(size, bond, dtype=numpy.int64)
    inner = numpy.zeros((bond, size, bond), dtype=numpy.int64)
    doubled = numpy.arange(num_doubled)
    inner[doubled, doubled, num_doubled] = 1
    inner[num_doubled] = same
    return same[None], inner, same.T[:, :, None].copy()


def witness_weights(network: TensorTrain) -> dict[str, Residues]:
    """The witness as weights of a train, with equal cores or not.

    Raises:
        SizeError: if the train's bonds have several dimensions.
    """
    if len(set(network.bonds)) > 1:
        raise SizeError(f"witness_weights: all bonds must be of one size, got {network.bonds}.")
    first, inner, last = witness_cores(size=network.size, bond=network.bonds[0])
    cores = (first, *(inner,) * (network.order - 2), last)
    return {network.core_name(position): core for position, core in enumerate(cores)}
