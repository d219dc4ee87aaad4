"""Every format by its name, as the command line says it."""

from rankscope.factorize.formats.experts import SVD_EACH
from rankscope.factorize.formats.format import Format
from rankscope.factorize.formats.plain import (
    DENSE,
    CPFormat,
    SVDFormat,
    TensorRingFormat,
    TensorTrainFormat,
    TuckerFormat,
)
from rankscope.factorize.formats.reshaped import (
    ReshapedCPFormat,
    ReshapedTensorRingFormat,
    ReshapedTensorTrainFormat,
    ReshapedTuckerFormat,
)

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        SVDFormat(),
        CPFormat(),
        TuckerFormat(),
        TensorTrainFormat(),
        TensorRingFormat(),
        ReshapedCPFormat(),
        ReshapedTuckerFormat(),
        ReshapedTensorTrainFormat(),
        ReshapedTensorRingFormat(),
    )
}

# What a stored weight may be: also the dense one, in fewer bits, and experts each by itself.
STORED_FORMATS: dict[str, Format] = {**FORMATS, DENSE.name: DENSE, SVD_EACH.name: SVD_EACH}
