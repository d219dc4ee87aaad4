# Every public name once; see `rankscope/__init__.pyi`.
from . import families as families
from .contraction import Plan as Plan
from .contraction import plan_contraction as plan_contraction
from .cost import Cost as Cost
from .cuts import minimal_cut as minimal_cut
from .describing import describe as describe
from .diagram import Diagram as Diagram
from .einsum import from_einsum as from_einsum
from .einsum import to_einsum as to_einsum
from .families import family as family
from .module import module_arrays as module_arrays
from .network import Network as Network
from .network import Step as Step
from .network import Sum as Sum
from .network import Term as Term
from .parts import Convolution as Convolution
from .parts import Function as Function
from .parts import Index as Index
from .parts import IndexKind as IndexKind
from .parts import Node as Node
from .parts import Region as Region
from .parts import Role as Role
from .program import einsum_program as einsum_program
from .serialization import from_dict as from_dict
from .serialization import to_dict as to_dict
from .source import to_source as to_source

__all__: list[str]
