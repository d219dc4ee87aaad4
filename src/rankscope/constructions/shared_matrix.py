"""A dense layer whose matrix repeats a few weights: weight sharing, entry by entry."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import sparse

from rankscope.constructions.dense import Reals

Integers = NDArray[numpy.int64]


@dataclass(frozen=True, eq=False)
class SharedMatrix:
    """The affine map x -> M x + `bias`, with M written as terms.

    Term n adds `coefficients[n]` times `weights[sources[n]]` to M at `rows[n]`, `columns[n]`. An
    entry without a term is zero whatever the weights; one place may have several terms.

    Args:
        shape: of M.
        weights: the free numbers, as one list.
        rows: of the terms.
        columns: of the terms.
        sources: which weight each term repeats.
        coefficients: how often; 1 in convolutions and recurrences.
        bias: one for each row.
    """

    shape: tuple[int, int]
    weights: Reals
    rows: Integers
    columns: Integers
    sources: Integers
    coefficients: Reals
    bias: Reals

    def to_sparse(self) -> sparse.csr_array:
        """M, with several terms at one place added up."""
        terms = self.coefficients * self.weights[self.sources]
        return sparse.coo_array((terms, (self.rows, self.columns)), shape=self.shape).tocsr()

    def to_dense(self) -> Reals:
        """M as an array."""
        return numpy.asarray(self.to_sparse().toarray())

    def __call__(self, vectors: Reals) -> Reals:
        """Apply the affine map to each row of `vectors`."""
        return numpy.asarray((self.to_sparse() @ vectors.T).T + self.bias)

    @property
    def num_entries(self) -> int:
        """How many entries of M are not zero for almost all weights."""
        places = self.rows * self.shape[1] + self.columns
        return len(numpy.unique(places[self.coefficients != 0]))

    @property
    def num_weights(self) -> int:
        """How many different weights stand in M."""
        return len(numpy.unique(self.sources))

    def places(self, source: int) -> Integers:
        """Rows and columns where a weight stands, one pair for each term.

        These entries are equal where they have no other term and the same coefficient.
        """
        chosen = self.sources == source
        return numpy.stack([self.rows[chosen], self.columns[chosen]], axis=1)

    def __str__(self) -> str:
        rows, columns = self.shape
        return (
            f"{rows} x {columns} matrix, {self.num_entries:,} of {rows * columns:,} entries, "
            f"{self.num_weights:,} different weights"
        )
