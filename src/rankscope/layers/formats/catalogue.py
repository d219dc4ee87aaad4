"""Every format by its name, as the command line says it."""

from rankscope.layers.formats.cp_format import CPFormat
from rankscope.layers.formats.format import Format
from rankscope.layers.formats.reshaped_cp import ReshapedCPFormat
from rankscope.layers.formats.reshaped_tensor_ring import ReshapedTensorRingFormat
from rankscope.layers.formats.reshaped_tensor_train import ReshapedTensorTrainFormat
from rankscope.layers.formats.reshaped_tucker import ReshapedTuckerFormat
from rankscope.layers.formats.svd_format import SVDFormat
from rankscope.layers.formats.tensor_ring_format import TensorRingFormat
from rankscope.layers.formats.tensor_train_format import TensorTrainFormat
from rankscope.layers.formats.tucker_format import TuckerFormat

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
