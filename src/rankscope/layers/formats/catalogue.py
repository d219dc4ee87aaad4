"""Every format by its name, as the command line says it."""

from rankscope.layers.formats.format import Format
from rankscope.layers.formats.plain import (
    CPFormat,
    SVDFormat,
    TensorRingFormat,
    TensorTrainFormat,
    TuckerFormat,
)
from rankscope.layers.formats.reshaped import (
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
