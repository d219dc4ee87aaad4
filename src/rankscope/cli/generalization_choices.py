"""The choices of `rankscope generalization` by name."""

from rankscope.generalization.properties import Exact, Form, Triangle
from rankscope.generalization.rank_search import Direct, Mode, Paper
from rankscope.generalization.sample import AsPublished, Euclidean, LargestEntry, Tolerance

# "measured" compares outputs instead of bounding them, so that the mode does not matter.
SEARCHES: dict[str, Mode] = {"direct": Direct(), "paper": Paper(), "measured": Direct()}
FORMS: dict[str, Form] = {"triangle": Triangle(), "exact": Exact()}
TOLERANCES: dict[str, Tolerance] = {
    tolerance.name: tolerance for tolerance in (LargestEntry(), Euclidean(), AsPublished())
}
