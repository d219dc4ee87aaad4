"""Audit the default configuration of every causal model of transformers, and write the table.

`python docs/make_configurations_table.py` (about a minute of processor time) writes
docs/configurations.md. Needs the `dev` extra.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from rankscope import audit
from rankscope.auditing import FAMILIES
from rankscope.errors import RankscopeError
from rankscope.extras import transformers

PAGE = Path(__file__).parent / "configurations.md"
INTRODUCTION = """# Which configurations are audited

Made by `python docs/make_configurations_table.py`. transformers {version} names {count} types of
causal language models. For each, its default configuration is written as `config.json` with the
architecture that transformers gives the type, and audited by `rankscope.audit`; beside it the model
itself is built on the meta device and counted. **{equal} of {count} totals are equal.** *family*
says that the configuration is read without torch, *built* that transformers builds it.

"""


def built_total(package: Any, model_type: str, architecture: str) -> int | str:
    """Parameters of the model that transformers makes, or why it makes none."""
    model_class = getattr(package, architecture)
    try:
        config = package.CONFIG_MAPPING[model_type]()
        with torch.device("meta"):
            try:
                model = model_class(config)
            except (AttributeError, TypeError):
                model = model_class(config.get_text_config(decoder=True))
    except Exception as error:  # noqa: BLE001 - a page that says what failed is better than none
        return f"{type(error).__name__}: {' '.join(str(error).split())[:90]}".replace("|", "/")
    total: int = sum(parameter.numel() for parameter in model.parameters())
    return total


def audited_total(package: Any, model_type: str, architecture: str) -> int | str:
    """The total of an audit, or its refusal."""
    try:
        document = package.CONFIG_MAPPING[model_type]().to_dict()
    except Exception as error:  # noqa: BLE001 - some types have no default configuration
        return f"no default configuration: {' '.join(str(error).split())[:80]}"
    document["architectures"] = [architecture]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(document, default=str))
        try:
            return audit(path).parameters.total
        except RankscopeError as error:
            return str(error).replace(str(path), "config.json").replace("|", "/")[:160]


def main() -> None:
    """Measure, and write the page."""
    package: Any = transformers()
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    known = {name for family in FAMILIES.values() for name in (family.name, *family.model_types)}
    rows, equal, start = [], 0, time.process_time()
    for model_type, given in NAMES.items():
        architecture = given if isinstance(given, str) else given[0]
        built = built_total(package, model_type, architecture)
        audited = audited_total(package, model_type, architecture)
        is_equal = isinstance(built, int) and built == audited
        equal += is_equal
        way = "family" if model_type in known else "built"
        cells = [f"{one:,}" if isinstance(one, int) else one for one in (audited, built)]
        rows.append(f"| {model_type} | {way} | {cells[0]} | {cells[1]} | {'=' * is_equal} |")
    heads = "| model_type | read by | audited | built | |\n|---|---|--:|--:|---|\n"
    text = INTRODUCTION.format(version=package.__version__, count=len(rows), equal=equal)
    PAGE.write_text(text + heads + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"{equal} of {len(rows)} in {time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
