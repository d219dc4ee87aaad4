"""The top-level functions: what commands do, for whatever `open_model` takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rankscope.models import Model, open_model
from rankscope.progress import Report, ignore

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from rankscope.auditing.auditor import Audit
    from rankscope.generalize.analysis import Generalization, Options
    from rankscope.networks.samples import LabelledSamples
    from rankscope.robust.attacks import Attack
    from rankscope.robust.certification import Certification
    from rankscope.robust.methods import Method
    from rankscope.robust.norms import Norm

RADII = (36 / 255, 72 / 255, 108 / 255)  # those that papers about CIFAR-10 report


def audit(
    model: "str | Path | nn.Module | Model | None" = None,
    *,
    family: str | None = None,
    name: str | None = None,
    report: Report = ignore,
) -> "Audit":
    """Audit a model from its configuration, its weights, or both.

    Args:
        model: whatever `open_model` takes, such as a folder of Hugging Face, a file of weights,
            `digits` or a module; None for the small transformer that comes with the package.
        family: how to read the configuration, where it does not say.
        name: what to call the model in the audit; its word, path or class by default.
        report: called after every tensor.

    Example:
        >>> audit().configuration.depth
        4
        >>> audit("digits").parameters.total
        19178

    Raises:
        RequestError: if it is no model, or of a kind that has neither weights nor configuration.
        ModelFileError: if it is damaged or unsafe, or weights are not finite, empty, or integers.
        ConfigurationError: if the configuration cannot be read, or contradicts the weights.
    """
    from rankscope.auditing.auditor import audit as audit_opened

    if model is None:
        return audit_opened(None, family=family, name=name, report=report)
    opened = open_model(model)
    opened.require_for("audit")
    known = name or (model if isinstance(model, str) else opened.name)
    return audit_opened(opened.audited, family=family, name=known, report=report)


def certify_robustness(  # noqa: PLR0913 - the parts of a certification, all by name
    model: "str | Path | nn.Module | Model",
    data: "str | Path | tuple[Tensor, Tensor] | LabelledSamples",
    radii: Sequence[float] = RADII,
    *,
    norm: "Norm | None" = None,
    method: "Method | None" = None,
    attack: "Attack | None" = None,
    pixels: tuple[float, float] | None = (0.0, 1.0),
    dtype: "torch.dtype | None" = None,
    samples: int | None = None,
    report: Report = ignore,
) -> "Certification":
    """Prove which labels of a classifier no small perturbation changes, and attack the others.

    Args:
        model: whatever `open_model` takes, with trained weights.
        data: test samples: the name of a data set, a folder with the one that belongs to the
            model, a file of inputs and labels, or the two tensors, as the model takes them. Pixels
            of a data set are in 0..1, and a built-in network that was trained on scaled ones gets
            the scaling as a part of it.
        radii: of perturbations, at least one, in the units of the data.
        norm: of perturbations; None for the Euclidean one.
        method: of the proof; None for Lipschitz constants.
        attack: that tries to refute it; None for APGD.
        pixels: smallest and largest value of an entry; None if there is no limit.
        dtype: in which the model is certified, attacked and to be run; it is converted before, and
            so are the samples. None for the model's own.
        samples: only the first so many; None for all.
        report: called with the progress.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> _ = nn.init.eye_(layer.weight)
        >>> corners = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> print(certify_robustness(layer, (corners, torch.tensor([0, 1])), [0.5]))
        clean 100.00%
        0.5: 100.00% certified, 100.00% after the attack

    Raises:
        RequestError: if the model or the data are not of a usable kind.
        DataError: if weights or a data set are not there.
        RobustnessError: if the attack breaks a sample that is certified; or if numbers in the
            model or its outputs are not finite, or labels, inputs, radii or dtype do not fit.
        UnsupportedModuleError: if the method does not know an operation of the model.
    """
    from rankscope.robust.certification import certify

    opened = open_model(model)
    opened.require_for("certify")
    labelled = _labelled_samples(opened, data, samples, part="test")
    return certify(
        _classifier(opened, labelled),
        labelled.inputs,
        labelled.labels,
        radii,
        norm=norm,
        method=method,
        attack=attack,
        pixels=pixels,
        dtype=dtype,
        report=report,
    )


def bound_generalization(
    model: "str | Path | nn.Module | Model",
    data: "str | Path | tuple[Tensor, Tensor] | LabelledSamples",
    margin: float = 1.0,
    *,
    options: "Options | None" = None,
    samples: int | None = None,
    report: Report = ignore,
) -> "Generalization":
    """Bound a classifier's error by how far it can be compressed on its training samples.

    Args:
        model: whatever `open_model` takes, with trained weights.
        data: what it was trained on; see `certify_robustness`.
        margin: of scores, that the compression may use up.
        options: how ranks are searched for, and which bounds are computed.
        samples: only the first so many; None for all.
        report: called after every stage.

    Raises:
        RequestError: if the model or the data are not of a usable kind.
        DataError: if weights or a data set are not there.
        GeneralizationError: if the margin is not positive, labels are no classes, or a layer is
            dead in paper mode.
        UnsupportedModuleError: if the network cannot be walked, with the name of the operation.
        RobustnessError: if a weight is not finite, with its name.
    """
    from rankscope.generalize.analysis import analyse
    from rankscope.generalize.sample import Sample, require_margin
    from rankscope.robust.running_floats import in_floats

    require_margin(margin)
    opened = open_model(model)
    opened.require_for("generalization")
    labelled = _labelled_samples(opened, data, samples, part="train")
    network, inputs = in_floats(_classifier(opened, labelled), labelled.inputs)
    sample = Sample(inputs, labelled.labels)
    return analyse(network, sample, margin, options=options, report=report)


def _labelled_samples(
    opened: Model,
    data: "str | Path | tuple[Tensor, Tensor] | LabelledSamples",
    count: int | None,
    *,
    part: Literal["train", "test"],
) -> "LabelledSamples":
    from rankscope.networks.samples import LabelledSamples, read_labelled

    if isinstance(data, str | Path):
        return read_labelled(str(data), data_set=opened.data_set, count=count, part=part)
    whole = data if isinstance(data, LabelledSamples) else LabelledSamples(*data)
    return LabelledSamples(whole.inputs[:count], whole.labels[:count], whole.normalize)


def _classifier(opened: Model, samples: "LabelledSamples") -> "nn.Module":
    """The network, behind the scaling that it was trained with; one of transformers, as logits.

    Tokens have no neighbours: of a language model, samples are the vectors that its table gives.
    """
    if opened.folder is not None:
        from rankscope.compression.recovering import TokenModel

        module: Any = opened.module
        name = str(module.main_input_name)
        name = "inputs_embeds" if name == "input_ids" else name
        return TokenModel(module, name).eval()
    if opened.takes_pixels or samples.normalize is None:
        return opened.module
    from torch import nn

    from rankscope.robust.norm_preserving import InputScaling

    scaling = InputScaling(samples.normalize.means, samples.normalize.deviations)
    return nn.Sequential(scaling, opened.module).eval()
