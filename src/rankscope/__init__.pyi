# Every public name once: type checkers read this file, and `rankscope.x` is imported from where it
# stands here when it is first used.
from . import diagrams as diagrams
from .architectures.attention.self_attention import SelfAttention as SelfAttention
from .architectures.certification import certify_rank as certify_rank
from .architectures.certification import verify as verify
from .architectures.measuring import measure_rank as measure_rank
from .auditing.audit import Audit as Audit
from .auditing.plan import plan as plan
from .compression.applying import Compressed as Compressed
from .compression.compressing import compress as compress
from .compression.loading import load as load
from .compression.saving import save as save
from .diagrams.cost import cost as cost
from .diagrams.diagram import Diagram as Diagram
from .diagrams.drawing import draw as draw
from .diagrams.module import to_module as to_module
from .diagrams.network import Network as Network
from .errors import RankscopeError as RankscopeError
from .models import open_model as open_model
from .reading import from_module as from_module
from .reading import trace as trace
from .separation.certificates.certificate import Certificate as Certificate
from .separation.measuring.measured import MeasuredRank as MeasuredRank
from .separation.partition import Partition as Partition
from .verbs import audit as audit
from .verbs import bound_generalization as bound_generalization
from .verbs import certify_robustness as certify_robustness

__version__: str
__all__: list[str]
