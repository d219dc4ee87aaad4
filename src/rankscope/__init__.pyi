# Every public name once: type checkers read this file, and `rankscope.x` is imported from where it
# stands here when it is first used.
from . import diagrams as diagrams
from .auditing.auditor import Audit as Audit
from .auditing.shape_plan import plan as plan
from .compression.applying import Compressed as Compressed
from .compression.compressing import compress as compress
from .compression.saving import load as load
from .compression.saving import save as save
from .diagrams.cost import cost as cost
from .diagrams.diagram import Diagram as Diagram
from .diagrams.module import to_module as to_module
from .diagrams.network import Network as Network
from .drawing.drawing import draw as draw
from .errors import RankscopeError as RankscopeError
from .models import open_model as open_model
from .rank.certificate import Certificate as Certificate
from .rank.measured import MeasuredRank as MeasuredRank
from .rank.measuring import measure_rank as measure_rank
from .rank.networks.self_attention import SelfAttention as SelfAttention
from .rank.partition import Partition as Partition
from .rank.verification import certify_rank as certify_rank
from .rank.verification import verify as verify
from .reading import from_module as from_module
from .reading import trace as trace
from .verbs import audit as audit
from .verbs import bound_generalization as bound_generalization
from .verbs import certify_robustness as certify_robustness

__version__: str
__all__: list[str]
