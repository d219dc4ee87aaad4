"""Existing models beside the law."""

from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.law import DepthLaw, LawDepth, parameters_in_blocks
from rankscope.auditing.shape import Shape


@dataclass(frozen=True)
class ComparedModel:
    """A model, and the depth that the law gives as many parameters.

    Args:
        name: how it is called.
        configuration: its shape.
        law_depth: the law's depth for the parameters in its blocks.
    """

    name: str
    configuration: Configuration
    law_depth: LawDepth

    @classmethod
    def of(cls, name: str, configuration: Configuration, law: DepthLaw) -> "ComparedModel":
        """Put a model beside the law."""
        return cls(name, configuration, law.best_depth(parameters_in_blocks(configuration)))

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        found = self.configuration
        return Shape(found.depth, found.width, found.heads, found.head_size, found.embedding_rank)

    @property
    def parameters(self) -> int:
        """Those in its blocks, which the law counts."""
        return parameters_in_blocks(self.configuration)

    @property
    def verdict(self) -> str:
        """Where its depth lies against the law's, within the uncertainty of the fit."""
        depth = self.configuration.depth
        if self.law_depth.admits(depth):
            return "as the law"
        return f"{'deeper' if depth > self.law_depth.real else 'shallower'} than the law"

    @property
    def remark(self) -> str | None:
        """How the model differs from those that the law was fitted on."""
        found = self.configuration
        if found.encoder_depth and found.decoder_depth:
            return (
                f"parameters of encoder ({found.encoder_depth}) and decoder "
                f"({found.decoder_depth}) together"
            )
        if found.family == "albert":
            return "all blocks share their parameters, counted once"
        return f"all {found.num_experts} experts counted" if found.num_experts > 1 else None

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        shape, law_depth = self.shape, self.law_depth
        return {
            "name": self.name,
            "family": self.configuration.family,
            "depth": shape.depth,
            "width": shape.width,
            "heads": shape.heads,
            "head_size": shape.head_size,
            "embedding_rank": shape.embedding_rank,
            "parameters": self.parameters,
            "total_parameters": self.configuration.parameters.total,
            "depth_real": law_depth.real,
            "depth_low": law_depth.low,
            "depth_high": law_depth.high,
            "verdict": self.verdict,
            "remark": self.remark,
            "regime": str(shape.regime),
            **shape.bounds_to_dict(),
        }
