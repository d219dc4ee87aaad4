"""The embedded convolutional network as a PyTorch module."""

from safetensors.torch import load_file

from rankscope.architectures.models.digits import DigitsNetwork
from rankscope.auditing.embedded import embedded_model


def trained_digits_network() -> DigitsNetwork:
    """The embedded convolutional network, ready to use."""
    network = DigitsNetwork()
    network.load_state_dict(load_file(embedded_model("cnn") / "model.safetensors"))
    return network.eval()
