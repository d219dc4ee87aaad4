"""Two small trained models that come with the package, for an audit without a download.

Both were trained by examples/train_embedded_models.py, on data that anyone may use; the
`manifest.json` beside each says on what, and how well it does.
"""

from importlib import resources
from pathlib import Path

from rankscope.errors import RequestError

EMBEDDED_MODELS = ("transformer", "cnn")


def embedded_model(name: str) -> Path:
    """The folder of a model that comes with the package.

    Args:
        name: "transformer" (GPT-2 style, characters, on the licence and pages of this project;
            a Hugging Face style folder) or "cnn" (scikit-learn's digits; weights only).

    Example:
        >>> sorted(path.name for path in embedded_model("cnn").iterdir())
        ['manifest.json', 'model.safetensors']

    Raises:
        RequestError: if there is no model of that name.
    """
    if name not in EMBEDDED_MODELS:
        raise RequestError(
            f"embedded_model: there is no model named {name!r}; "
            f"choose one of {', '.join(EMBEDDED_MODELS)}."
        )
    return Path(str(resources.files(__name__) / name))
