"""`cifar10-compression`: a published ResNet-32 in every format, at equal counted parameters.

The 30 convolutions between the first one and the classifier, 460,800 weights, are decomposed and
then repaired by the source's protocol, with the same time for every entry. The source names its
columns by nominal rates; its code kept up to 3.4 times as much (for r-CP), and everything here is
counted.

Reference:
    Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; accuracies as in the talk's table.
"""

from rankscope.experiments.compression_entry import DenseEntry, UniformEntry
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.planned_entry import PlannedEntry
from rankscope.experiments.subject import DIGITS, RESNET32

# Accuracy in percent by format and nominal percentage kept; 93.2 uncompressed.
PUBLISHED: dict[str, dict[int, float]] = {
    "svd": {5: 83.09, 10: 87.27, 20: 89.58, 40: 90.85},
    "cp": {5: 84.02, 10: 86.93, 20: 88.75, 40: 88.75},
    "tucker": {5: 83.57, 10: 86.00, 20: 88.03, 40: 89.35},
    "tensor-train": {5: 77.44, 10: 82.92, 20: 84.13, 40: 86.64},
    "r-cp": {2: 85.7, 5: 89.86, 10: 91.28},
    "r-tucker": {2: 61.06, 5: 71.34, 10: 81.59, 20: 87.11},
    "r-tensor-train": {2: 78.95, 5: 84.26, 10: 87.89},
    "r-tensor-ring": {5: 80.80, 20: 90.60},
}

_QUICK = (
    DenseEntry(DIGITS),
    *(UniformEntry(DIGITS, 0.1, format) for format in ("svd", "tucker", "r-cp")),
)
_PROTOCOL = (
    "Every 3 x 3 convolution of a trained network is written in one format with the same share of "
    "its weights, then repaired stage by stage with at most 150,000 samples. The row named best "
    "chooses formats and ranks together and is trained end to end for the rest of the row's "
    "seconds. Accuracy in percent on the whole test set. --quick: the embedded digits network."
)

CIFAR10_COMPRESSION = Experiment(
    name="cifar10-compression",
    title="ResNet-32 on CIFAR-10: accuracy in percent at counted shares of 460,800 weights",
    entries=(
        DenseEntry(RESNET32, published=93.2),
        *(
            UniformEntry(RESNET32, percentage / 100, format, published)
            for format, row in PUBLISHED.items()
            for percentage, published in row.items()
        ),
        PlannedEntry(RESNET32, 0.1),
    ),
    needs="CIFAR-10 (binary) and the published ResNet-32",
    quick=_QUICK,
    protocol=_PROTOCOL,
    figure=LineFigure("share", "accuracy", "format"),
)

DIGITS_COMPRESSION = Experiment(
    name="digits-compression",
    title="The embedded digits network: accuracy in percent at counted shares of 13,824 weights",
    entries=(
        DenseEntry(DIGITS),
        *(
            UniformEntry(DIGITS, percentage / 100, format)
            for format in PUBLISHED
            for percentage in (5, 10, 20)
        ),
        PlannedEntry(DIGITS, 0.1),
    ),
    seconds=30.0,
    quick=_QUICK,
    protocol=_PROTOCOL,
    figure=LineFigure("share", "accuracy", "format"),
)
