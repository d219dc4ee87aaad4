"""Which reader reads which class of module, and why some classes cannot be read."""

from collections.abc import Mapping

from torch import nn

from rankscope.diagrams.reading.activation import (
    ACTIVATIONS,
    NORMALIZED,
    read_activation,
    read_softmax,
)
from rankscope.diagrams.reading.attention import read_attention
from rankscope.diagrams.reading.calls import Call, ModuleReader, Result
from rankscope.diagrams.reading.convolution import (
    read_adaptive_pool,
    read_average_pool,
    read_convolution,
)
from rankscope.diagrams.reading.linear import read_bilinear, read_embedding, read_linear
from rankscope.diagrams.reading.normalization import (
    read_batch_norm,
    read_group_norm,
    read_instance_norm,
    read_layer_norm,
    read_rms_norm,
)
from rankscope.diagrams.reading.shapes import (
    read_dropout,
    read_flatten,
    read_identity,
    read_unflatten,
)
from rankscope.diagrams.reading.transformer import (
    read_decoder,
    read_decoder_layer,
    read_encoder,
    read_encoder_layer,
    read_transformer,
)
from rankscope.errors import UnsupportedModuleError

# What PyTorch has and a diagram has not, and the reason a user is told.
REASONS: Mapping[type[nn.Module], str] = {
    **dict.fromkeys(
        (
            nn.MaxPool1d,
            nn.MaxPool2d,
            nn.MaxPool3d,
            nn.AdaptiveMaxPool1d,
            nn.AdaptiveMaxPool2d,
            nn.AdaptiveMaxPool3d,
        ),
        "a maximum is not a contraction; use average pooling",
    ),
    **dict.fromkeys(
        (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell),
        "a recurrence over time is not drawn; write its steps out",
    ),
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        "a transposed convolution has no diagram here",
    ),
    nn.EmbeddingBag: "bags of different lengths depend on the data",
    nn.Upsample: "an interpolation has no diagram here",
}


def _refuse(call: Call) -> Result:
    reason = next(text for kind, text in REASONS.items() if isinstance(call.module, kind))
    raise UnsupportedModuleError(reason)


# One visible table: a class of module that is not here is traced, or refused.
READERS: Mapping[type[nn.Module], ModuleReader] = {
    **dict.fromkeys(REASONS, _refuse),
    **dict.fromkeys(ACTIVATIONS, read_activation),
    **dict.fromkeys(NORMALIZED, read_softmax),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), read_convolution),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), read_average_pool),
    **dict.fromkeys(
        (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), read_adaptive_pool
    ),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), read_batch_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), read_instance_norm),
    **dict.fromkeys(
        (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout), read_dropout
    ),
    nn.Linear: read_linear,
    nn.Bilinear: read_bilinear,
    nn.Embedding: read_embedding,
    nn.LayerNorm: read_layer_norm,
    nn.RMSNorm: read_rms_norm,
    nn.GroupNorm: read_group_norm,
    nn.Identity: read_identity,
    nn.Flatten: read_flatten,
    nn.Unflatten: read_unflatten,
    nn.MultiheadAttention: read_attention,
    nn.TransformerEncoderLayer: read_encoder_layer,
    nn.TransformerEncoder: read_encoder,
    nn.TransformerDecoderLayer: read_decoder_layer,
    nn.TransformerDecoder: read_decoder,
    nn.Transformer: read_transformer,
}
