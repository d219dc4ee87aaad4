"""`embedding-bottleneck`: does width help beyond the rank of the embedding, and does depth?

Theorem 7.3 of the chapter: with inputs in a space of r dimensions, separation rank is capped by r
whatever the width, and only depth adds to it.
"""

from rankscope.architectures.sequence_models.attention_forms import MultiHead
from rankscope.architectures.sequence_models.pixel_model import COLOURS, PixelInput
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.experiments.bottleneck_gains import gain_rows
from rankscope.experiments.exact_rank_entry import ExactRankEntry
from rankscope.experiments.experiment import Entry, Experiment
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.sequence_entry import SequenceEntry, Steps
from rankscope.experiments.sequence_tasks import CharacterTask, PixelTask, SequenceTask

RANKS = (2, 4, 8, None)
# Four times the weights of the first: by width, and by depth.
SHAPES = {"base": (2, 32), "wide": (2, 64), "deep": (8, 32)}
HEADS = 2


def entries(
    task: SequenceTask,
    shapes: dict[str, tuple[int, int]],
    rank: int | None,
    num_positions: int,
    steps: Steps,
) -> tuple[SequenceEntry, ...]:
    """Every shape at one embedding rank."""
    kind = "pixels" if isinstance(task, PixelTask) else "characters"
    rank_name = "full" if rank is None else str(rank)
    return tuple(
        SequenceEntry(
            f"{kind}-rank-{rank_name}-{name}",
            task,
            TransformerShape(depth, width, MultiHead(HEADS, width // HEADS), num_positions, rank),
            steps,
        )
        for name, (depth, width) in shapes.items()
    )


_EXACT: tuple[Entry, ...] = tuple(
    ExactRankEntry(depth, width, embedding_rank=rank)
    for rank, depth, width in (
        (1, 2, 2),
        (1, 2, 4),
        (1, 3, 2),
        (2, 2, 2),
        (2, 2, 4),
        (2, 2, 6),
        (2, 3, 2),
        (3, 2, 3),
        (3, 2, 6),
        (4, 2, 4),
    )
)
_PIXELS = ((PixelInput.VECTOR, COLOURS), (PixelInput.TABLES, None))

EMBEDDING_BOTTLENECK = Experiment(
    name="embedding-bottleneck",
    title="Width and depth beyond the embedding rank: test loss (nats), bits of pixels, exact rank",
    entries=(
        *(
            entry
            for rank in RANKS
            for entry in entries(CharacterTask(), SHAPES, rank, 64, Steps(450))
        ),
        *(
            entry
            for pixels, rank in _PIXELS
            for entry in entries(PixelTask(pixels=pixels), SHAPES, rank, 64, Steps(350))
        ),
        *_EXACT,
    ),
    needs="tinyshakespeare, cifar-10-batches-bin",
    quick=(
        *(
            entry
            for rank in (2, None)
            for entry in entries(
                CharacterTask("embedded", 32),
                {"base": (1, 8), "wide": (1, 16), "deep": (4, 8)},
                rank,
                32,
                Steps(50),
            )
        ),
        *entries(PixelTask("digits"), {"base": (1, 8), "wide": (1, 16)}, COLOURS, 64, Steps(25)),
        *_EXACT[:4],
    ),
    protocol=(
        "Causal softmax transformers of two heads whose tokens and positions are vectors of r "
        "numbers, times a learned matrix to the width. For each r, three shapes: two blocks of "
        "width 32; four times the weights by width (two blocks of 64); four times by depth (eight "
        "blocks of 32). Characters of Shakespeare, trained as in depth-width; and CIFAR-10 "
        "averaged to 8 x 8, pixel by pixel, where a pixel is its RGB vector (r = 3) or a sum of "
        "learned vectors of its intensities (full rank), 350 batches of 32 images, bits for each "
        "intensity of 1,000 test images. Beside it, exact: separation ranks (almost all weights, "
        "four tokens, interleaved halves) of softmax-free attention of one head."
    ),
    seeds=3,
    figure=LineFigure("embedding rank", "test loss", "shape"),
    summary=gain_rows,
)
