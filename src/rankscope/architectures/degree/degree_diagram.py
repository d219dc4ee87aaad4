"""A network of mixed degrees as a tensor diagram."""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role


@dataclass(frozen=True)
class _Part:
    """Coordinates start..stop of a layer's values, which one step computes."""

    step: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def degree_diagram(
    num_inputs: int, width: int, degrees: tuple[int, ...], raised: tuple[int, ...]
) -> Network:
    """Draw a `DegreePolynomial` for one input (num_inputs,); its value is the output."""
    steps: list[Step] = []
    parts = [_Part("inputs", 0, num_inputs)]
    for number, (degree, extra) in enumerate(zip(degrees, raised, strict=True)):
        prefix = f"layers.{number}"
        for place in range(degree + (extra > 0)):
            size = width if place < degree else extra
            form = _affine(f"{prefix}.weights.{place}", f"{prefix}.biases.{place}", parts, size)
            label = rf"\mathbf{{f}}^{{{number + 1}}}_{{{place + 1}}}"
            steps.append(Step(f"form{number + 1}_{place + 1}", form, label))
        products = _products(number + 1, degree, width, extra)
        steps += [step for step, _ in products]
        parts = [part for _, part in products]
    steps.append(Step("y", _affine("readout", "constant", parts, None), "y"))
    average = sum(degree + extra / width for degree, extra in zip(degrees, raised, strict=True))
    title = f"Product network of {len(degrees)} layers, average degree {average / len(degrees):.3g}"
    return Network("mixed-polynomial", tuple(steps), title)


def _affine(weight: str, bias: str, parts: list[_Part], size: int | None) -> Body:
    """A map of all parts, and a bias; a number if there is no size."""
    held = () if size is None else ("o",)
    outputs = tuple(_feature(name, size) for name in held)
    terms = [Term(_map(weight, part, held, outputs)) for part in parts]
    constant = Diagram("bias", outputs, (Node("b", held, array=bias),), held)
    return Sum("form", (*terms, Term(constant)))


def _map(weight: str, part: _Part, held: tuple[str, ...], outputs: tuple[Index, ...]) -> Diagram:
    nodes = (
        Node("W", ("i", *held), array=weight, rows=(part.start, part.stop)),
        Node("x", ("i",), Role.DATA, r"\mathbf{x}", array=part.step),
    )
    return Diagram("map", (_feature("i", part.size), *outputs), nodes, held)


def _products(layer: int, degree: int, width: int, raised: int) -> list[tuple[Step, _Part]]:
    """The coordinates of higher degree first, if there are any."""
    parts = [_Part(f"x{layer}", 0, width)]
    if raised:
        parts = [_Part(f"x{layer}high", 0, raised), _Part(f"x{layer}low", raised, width)]
    found = []
    for part in parts:
        is_high = raised > 0 and part.start == 0
        nodes = tuple(
            Node(
                f"f{place}",
                ("o",),
                Role.DATA,
                rf"\mathbf{{f}}^{{{layer}}}_{{{place}}}",
                array=f"form{layer}_{place}",
                rows=(part.start, part.stop),
            )
            for place in range(1, degree + 1 + is_high)
        )
        product = Diagram("product", (_feature("o", part.size),), nodes, ("o",))
        found.append((Step(part.step, product, rf"\mathbf{{x}}^{{{layer}}}"), part))
    return found


def _feature(name: str, size: int | None) -> Index:
    return Index(name, size, kind=IndexKind.FEATURE)
