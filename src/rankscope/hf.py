"""The door to transformers: `import rankscope.hf`, and `from_pretrained` opens compressed models.

    import rankscope.hf
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("folder that rankscope compress wrote")

Importing this module, and nothing else, registers the method `rankscope` with transformers, and
factorized layers with the LoRA of peft, if that is installed. Beside that it opens folders
(`load_folder`), cuts texts into tokens (`read_tokens`) and writes compressed models whole or not at
all (`save_folder`). Code in a folder is never run. Needs the extra `hf`.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.auditing.weight_files import open_model
from rankscope.compression.applying import Compressed
from rankscope.compression.saving import check_outputs, check_read_back, finite_outputs
from rankscope.errors import ModelFileError, RankscopeError, RequestError
from rankscope.extras import transformers as _load_transformers
from rankscope.factorize.linear import FactorizedLinear
from rankscope.files import folder_beside, is_file, plain_file
from rankscope.strict_json import Numbers, read_document
from rankscope.tensor_files.sources import TensorSource

_load_transformers()  # first of all: it says which extra is missing
import transformers  # noqa: E402
from transformers.quantizers import auto  # noqa: E402

from rankscope.compression.hugging_face import (  # noqa: E402
    METHOD,
    RankscopeConfig,
    RankscopeQuantizer,
)

__all__ = [
    "RankscopeConfig",
    "RankscopeQuantizer",
    "load_folder",
    "read_numbers",
    "read_tokens",
    "save_folder",
]

CONFIG = "config.json"
SEQUENCES, TOKENS, BATCH = 64, 128, 8  # of calibration text, at most
_SHOWN = 4  # names in a message, at most
_SAFE = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER = "adapter_config.json"
_OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
# What goes along with a model into the folder of its compressed form.
_BESIDE = (
    *_TOKENIZERS,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.jinja",
    "preprocessor_config.json",
)


def _register() -> None:
    if METHOD not in auto.AUTO_QUANTIZATION_CONFIG_MAPPING:
        auto.register_quantization_config(METHOD)(RankscopeConfig)
        auto.register_quantizer(METHOD)(RankscopeQuantizer)


_register()


# --- Models from their folders --------------------------------------------------------------------


def load_folder(folder: Path | str) -> nn.Module:
    """The model of a folder as Hugging Face writes it, dense or compressed, in inference mode.

    Args:
        folder: with `config.json` and weights, all of which the model must find.

    Raises:
        ModelFileError: if it is no such folder, a file is missing or damaged, plan and weights do
            not fit, or the model needs code of its own.
        CompressionError: if its plan is for another model.
    """
    folder = Path(folder)
    document = read_document(folder / CONFIG, numbers=Numbers.ANY)
    model_class = _model_class(folder, document)
    _require_own_weights(folder, document)
    tensors = open_model(folder).tensors  # refuses unsafe files, before transformers opens any
    with _quiet(), _one_line(folder):
        if tensors is None or any(is_file(folder / name) for name in _SAFE):
            model, info = model_class.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, **_OFFLINE
            )
        else:
            model, info = _from_tensors(folder, model_class, tensors)
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelFileError(
            f"{folder} lacks {len(missing)} of the tensors of {model_class.__name__}, such as "
            f"{', '.join(missing[:_SHOWN])}; it would start with random numbers there."
        )
    _require_fractions(folder, model, tensors)
    loaded: nn.Module = model.eval()
    return loaded


def _require_own_weights(folder: Path, document: dict[str, Any]) -> None:
    """Refuse what would make transformers open other files than those that are checked here."""
    if "transformers_weights" in document:
        raise ModelFileError(f"{folder}: {CONFIG} names weights by transformers_weights.")
    if is_file(folder / _ADAPTER):
        raise ModelFileError(
            f"{folder} holds {_ADAPTER}: an adapter of another model; merge it into that model."
        )


def _from_tensors(folder: Path, model_class: Any, tensors: TensorSource) -> Any:
    """A model of weights in pickles, which our reader interprets: torch.load is never called."""
    config = transformers.AutoConfig.from_pretrained(folder, **_OFFLINE)
    if model_class is transformers.AutoModel:
        with torch.device("meta"):
            model_class = type(model_class.from_config(config))
    state = {entry.name: tensors.read(entry.name) for entry in tensors.entries}
    return model_class.from_pretrained(
        None, config=config, state_dict=state, output_loading_info=True
    )


def _require_fractions(folder: Path, model: nn.Module, tensors: TensorSource | None) -> None:
    """Refuse integers where fractions belong; transformers would take them for fractions."""
    held = {} if tensors is None else {entry.name: entry.dtype for entry in tensors.entries}
    for name, value in model.state_dict().items():
        found = held.get(name, "float")
        if value.is_floating_point() and "float" not in found:
            raise ModelFileError(f"{folder}: {name} holds {found}, wanted fractions.")
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            raise ModelFileError(f"{folder}: {name} holds {parameter.dtype}, wanted fractions.")


def _model_class(folder: Path, document: dict[str, Any]) -> Any:
    """The class that `architectures` names, or the bare model of the type."""
    names = document.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_]+", name):
        model_class = getattr(transformers, name, None)
        if isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel):
            return model_class
    if name is not None or "auto_map" in document:
        raise ModelFileError(
            f"{folder}: transformers {transformers.__version__} has no model {ascii(name)[:80]}; "
            "code that comes with a folder is never run."
        )
    return transformers.AutoModel


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    """Errors of transformers as one line about the folder."""
    try:
        yield
    except RankscopeError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelFileError(f"transformers cannot open {folder}: {reason[:400]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the reports and progress bars of transformers."""
    logging = transformers.utils.logging
    level, shows = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows:
            logging.enable_progress_bar()


# --- Texts as tokens ------------------------------------------------------------------------------


def read_tokens(
    folder: Path | str,
    text: Path | str,
    model: nn.Module,
    *,
    sequences: int = SEQUENCES,
    length: int = TOKENS,
    batch: int = BATCH,
) -> list[dict[str, Tensor]]:
    """The first tokens of a text, in batches as the model takes them.

    Args:
        folder: with the tokenizer.
        text: a file in UTF-8.
        model: that will be run on them; it says how long a sequence may be.
        sequences: so many at most.
        length: tokens of a sequence; fewer if the model or the text has no more.
        batch: sequences in a batch.

    Raises:
        ModelFileError: if the tokenizer or the text cannot be read.
        RequestError: if the text has no tokens, or some that the model has no vector for.
    """
    numbers = read_numbers(folder, text, model, first=sequences * length)
    config: Any = model.config
    places = getattr(config.get_text_config(), "max_position_embeddings", None)
    length = min(length, len(numbers), *(() if not places else (places,)))
    rows = numbers[: len(numbers) // length * length].reshape(-1, length)[:sequences]
    batches = [{"input_ids": part} for part in torch.split(rows, batch)]
    if getattr(config, "is_encoder_decoder", False):
        return [part | {"decoder_input_ids": part["input_ids"]} for part in batches]
    return batches


def read_numbers(
    folder: Path | str,
    text: Path | str,
    model: nn.Module,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Tensor:
    """The numbers of the tokens of a text, (count,), at least one.

    Args:
        folder: with the tokenizer.
        text: a file in UTF-8.
        model: that will be run on them.
        first: only so many at its beginning; the rest is not cut, which takes a tokenizer more
            memory than many models.
        last: only so many at its end.

    Raises:
        ModelFileError: if the tokenizer or the text cannot be read.
        RequestError: if the text has no tokens, or some that the model has no vector for.
    """
    numbers = torch.tensor(_numbers(Path(folder), Path(text), first, last), dtype=torch.long)
    if not len(numbers):
        raise RequestError(f"--text: {str(text)!r} has 0 tokens; give a text with some.")
    config: Any = model.config
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if vocabulary is not None and int(numbers.max()) >= vocabulary:
        raise RequestError(
            f"--text: the tokenizer gives the number {int(numbers.max()):,}, but the model has "
            f"{vocabulary:,} tokens; is it the tokenizer of another model?"
        )
    return numbers


def _numbers(folder: Path, text: Path, first: int | None, last: int | None) -> list[int]:
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelFileError(
            f"{folder} has no tokenizer: wanted one of {', '.join(_TOKENIZERS)} to cut the text."
        )
    with plain_file(text) as (file, _):
        data = file.read()
    try:
        words = data.decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{text} is no text in UTF-8: {error.reason}.") from error
    with _quiet(), _one_line(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_OFFLINE)

        def cut(part: str) -> list[int]:
            numbers: list[int] = tokenizer(part, add_special_tokens=False)["input_ids"]
            return numbers

        if first is not None:
            return _first_tokens(cut, words, first)
        return cut(words) if last is None else _last_tokens(cut, words, last)


_LETTERS = 8  # of the text are taken for each token that is wanted, then twice as many
_BEYOND = 64  # tokens that are cut and not used: those at a break may differ


def _first_tokens(cut: Callable[[str], list[int]], words: str, count: int) -> list[int]:
    """The first tokens of a text; it is broken at the end of a line, behind more than are used."""
    letters = _LETTERS * (count + _BEYOND)
    while letters < len(words):
        end = words.rfind("\n", 0, letters) + 1 or letters
        numbers = cut(words[:end])
        if len(numbers) >= count + _BEYOND:
            return numbers[:count]
        letters *= 2
    return cut(words)[:count]


def _last_tokens(cut: Callable[[str], list[int]], words: str, count: int) -> list[int]:
    """The last tokens of a text, broken likewise."""
    letters = _LETTERS * (count + _BEYOND)
    while letters < len(words):
        start = words.find("\n", len(words) - letters) + 1 or len(words) - letters
        numbers = cut(words[start:])
        if len(numbers) >= count + _BEYOND:
            return numbers[-count:]
        letters *= 2
    return cut(words)[-count:]


# --- Compressed models into folders ---------------------------------------------------------------


def save_folder(
    compressed: Compressed,
    folder: Path | str,
    *,
    source: Path | str | None = None,
    example: dict[str, Tensor] | None = None,
) -> None:
    """Write a compressed model of transformers as a folder that `from_pretrained` opens.

    It is written beside the folder, read back and run, and only then put in its place.

    Args:
        compressed: whose model is one of transformers.
        folder: to write into; files of other names stay.
        source: folder whose tokenizer goes along.
        example: inputs on which the model that is read back must give the same outputs.

    Raises:
        CompressionError: if what is read back differs, or outputs are not finite; nothing is
            written then.
        OutputError: if the folder cannot be written.
    """
    model: Any = compressed.model
    target = Path(folder).absolute()
    wanted = None if example is None else finite_outputs(compressed.model, example)
    with folder_beside(target) as made:
        with _quiet(), _one_line(target):
            model.save_pretrained(made)
        for name in _BESIDE:
            if source is not None and (Path(source) / name).is_file():
                shutil.copyfile(Path(source) / name, made / name)
        again = load_folder(made)
        check_read_back(model.state_dict(), again.state_dict())
        if example is not None and wanted is not None:
            check_outputs(wanted, finite_outputs(again, example))
        _publish(made, target)


def _publish(made: Path, target: Path) -> None:
    if not target.exists():
        made.rename(target)
        return
    # Without a configuration it is no model: a kill in between leaves none, never a wrong one.
    (target / CONFIG).unlink(missing_ok=True)
    for path in sorted(made.iterdir(), key=lambda path: path.name == CONFIG):
        path.replace(target / path.name)


# --- LoRA on factorized layers --------------------------------------------------------------------


def _teach_peft() -> None:
    """Let LoRA of peft attach to factorized layers, which it would not know.

    peft has a place for such classes in every `LoraConfig`; it is filled when one is made.
    """
    if find_spec("peft") is None:
        return
    from peft import LoraConfig

    from rankscope.compression.lora import LoraFactorizedLinear

    prepare = LoraConfig.__post_init__
    if getattr(prepare, "knows_rankscope", False):
        return

    def prepare_with_factorized(config: Any) -> None:
        prepare(config)
        config._register_custom_module({FactorizedLinear: LoraFactorizedLinear})

    prepare_with_factorized.knows_rankscope = True  # type: ignore[attr-defined]
    LoraConfig.__post_init__ = prepare_with_factorized


_teach_peft()
