"""All topics, in groups."""

from rankscope.constructions.topic import Topic
from rankscope.errors import RequestError
from rankscope.experiments.topics.attention import ATTENTION
from rankscope.experiments.topics.blocks import BLOCKS
from rankscope.experiments.topics.expressivity import EXPRESSIVITY
from rankscope.experiments.topics.layers import LAYERS
from rankscope.experiments.topics.learning import LEARNING
from rankscope.experiments.topics.regions import REGIONS
from rankscope.experiments.topics.training import TRAINING

GROUPS: dict[str, tuple[Topic, ...]] = {
    "Which functions networks are": EXPRESSIVITY,
    "Affine regions and depth": REGIONS,
    "Layers": LAYERS,
    "Learning": LEARNING,
    "Regularizers and skip connections": TRAINING,
    "Normalization, softmax, tensors": BLOCKS,
    "Attention": ATTENTION,
}
TOPICS = {topic.name: topic for group in GROUPS.values() for topic in group}


def find_topic(name: str) -> Topic:
    """A topic by its name.

    Raises:
        RequestError: if there is none of that name.
    """
    if name not in TOPICS:
        raise RequestError(f"There is no topic {name!r}; choose one of {', '.join(TOPICS)}.")
    return TOPICS[name]
