"""An MLP-Mixer as a tensor diagram: the hidden units of each perceptron, then its sum."""

from rankscope.architectures.degree.mixer_block import Activation, Power
from rankscope.architectures.degree.mixer_sizes import MixerSizes
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Region, Role

INPUTS = "x"


def mixer_diagram(sizes: MixerSizes, activation: Activation) -> Network:
    """Draw a mixer for one input (num_tokens, input_size); its value is the output."""
    embedding = Diagram(
        "tokens",
        (*_legs(sizes, "tk"), Index("r", sizes.input_size, "R", IndexKind.FEATURE)),
        (Node("E", ("k", "r"), array="embedding"), _data(INPUTS, "tr")),
        ("t", "k"),
    )
    steps = [Step("tokens0", embedding, r"\mathbf{X}_{0}")]
    for number in range(sizes.depth):
        for place, (side, legs) in enumerate((("token", "hk"), ("channel", "tg"))):
            at = 2 * number + place
            prefix = f"blocks.{number}.{side}"
            hidden = _hidden(sizes, prefix, f"tokens{at}", legs)
            steps.append(Step(f"hidden{at + 1}", hidden, rf"\mathbf{{H}}_{{{at + 1}}}"))
            added = _residual(sizes, prefix, at, legs, activation)
            steps.append(Step(f"tokens{at + 1}", added, rf"\mathbf{{X}}_{{{at + 1}}}"))
    steps.append(Step("y", _readout(sizes), "y"))
    return Network("mixer", tuple(steps), f"MLP-Mixer of {sizes.depth} blocks")


def _hidden(sizes: MixerSizes, prefix: str, source: str, legs: str) -> Sum:
    """U₁X or XV₁ᵗ and a bias, which is the same for all that is not mixed."""
    is_token = legs == "hk"
    unit, other = ("h", "k") if is_token else ("g", "t")
    weight = Node("W", (unit, "t" if is_token else "k"), array=f"{prefix}_in")
    mapped = Diagram("map", _legs(sizes, f"tk{unit}"), (weight, _data(source, "tk")), tuple(legs))
    bias = Node("b", (unit,), array=f"{prefix}_bias")
    ones = Node("ones", (other,), Role.CONSTANT, r"\mathbf{1}")
    constant = Diagram("bias", _legs(sizes, legs), (bias, ones), tuple(legs))
    return Sum("hidden", (Term(mapped), Term(constant)))


def _residual(sizes: MixerSizes, prefix: str, at: int, legs: str, activation: Activation) -> Sum:
    """The tokens and what the hidden units add to them."""
    unit, out = ("h", "t") if legs == "hk" else ("g", "k")
    count = activation.degree if isinstance(activation, Power) else 1
    hidden = tuple(
        Node(f"H{k}", tuple(legs), Role.DATA, r"\mathbf{H}", array=f"hidden{at + 1}")
        for k in range(count)
    )
    regions = () if isinstance(activation, Power) else (Region("S", ("H0",), Function("gelu")),)
    weight = Node("W", (out, unit), array=f"{prefix}_out")
    added = Diagram(
        "mixed", _legs(sizes, f"tk{unit}"), (*hidden, weight), ("t", "k"), regions=regions
    )
    source = f"tokens{at}"
    kept = Diagram("kept", _legs(sizes, "tk"), (_data(source, "tk"),), ("t", "k"))
    return Sum("tokens", (Term(kept), Term(added)))


def _readout(sizes: MixerSizes) -> Sum:
    nodes = (
        _data(f"tokens{2 * sizes.depth}", "tk"),
        Node("v", ("k",), array="readout"),
        Node("ones", ("t",), Role.CONSTANT, r"\mathbf{1}"),
    )
    read = Diagram("read", _legs(sizes, "tk"), nodes, ())
    return Sum("y", (Term(read), Term(Diagram("constant", (), (Node("constant", ()),), ()))))


def _data(source: str, indices: str) -> Node:
    return Node("X", tuple(indices), Role.DATA, r"\mathbf{X}", array=source)


def _legs(sizes: MixerSizes, names: str) -> tuple[Index, ...]:
    known = {
        "t": Index("t", sizes.num_tokens, "T", IndexKind.SEQUENCE),
        "k": Index("k", sizes.width, "F", IndexKind.FEATURE),
        "h": Index("h", sizes.token_hidden, "D", IndexKind.FEATURE),
        "g": Index("g", sizes.channel_hidden, "G", IndexKind.FEATURE),
    }
    return tuple(known[name] for name in names)
