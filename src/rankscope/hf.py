"""The door to transformers: `import rankscope.hf`, and `from_pretrained` opens compressed models.

    import rankscope.hf
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("folder that rankscope compress wrote")

Importing this module, and nothing else, registers the method `rankscope` with transformers (and
factorized layers with peft's LoRA, if peft is installed). Needs the extra `hf`.
"""

from rankscope.extras import transformers

transformers()  # first of all: it says which extra is missing
from transformers.quantizers import auto  # noqa: E402

from rankscope.compression.hugging_face import (  # noqa: E402
    METHOD,
    RankscopeConfig,
    RankscopeQuantizer,
)

__all__ = ["RankscopeConfig", "RankscopeQuantizer"]


def _register() -> None:
    if METHOD not in auto.AUTO_QUANTIZATION_CONFIG_MAPPING:
        auto.register_quantization_config(METHOD)(RankscopeConfig)
        auto.register_quantizer(METHOD)(RankscopeQuantizer)


_register()
