# %% [markdown]
# # Shrink a language model
#
# A small transformer that was trained on Shakespeare comes with the package. We look at its ranks, plan a smaller
# one under a budget, apply the plan, and measure what was lost. The same lines work for a folder of Hugging Face.

# %%
import torch

import rankscope

# %% [markdown]
# ## Where its rank is
# An audit opens a model without running it.

# %%
rankscope.audit("transformer")

# %% [markdown]
# ## A plan under one budget
# `keep` is the share of all parameters. Every weight gets a format and ranks, chosen together.

# %%
network = rankscope.open_model("transformer").module
compressed = rankscope.compress(network, keep=0.8)
compressed

# %% [markdown]
# ## What it costs
# The curve of the error against the budget says where it stops being free.

# %%
for keep in (0.95, 0.9, 0.8, 0.7, 0.6):
    plan = rankscope.compress(network, keep=keep).plan
    worst = max(plan.rows, key=lambda row: row.error)
    print(f"keep {keep:.0%}: largest error of a weight {worst.error:.3f}, in {worst.name}")

# %% [markdown]
# ## The outputs
# How far are the logits of the smaller model from those of the original, on the same random characters? On text of
# your own, `rankscope evaluate` says what it lost.

# %%
tokens = torch.randint(0, 100, (4, 32), generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    before, after = network(tokens), compressed.model(tokens)
print(f"relative distance of the logits {float((after - before).norm() / before.norm()):.3f}")
same = (after.argmax(-1) == before.argmax(-1)).float().mean()
print(f"the likeliest next character is the same for {float(same):.0%} of the positions")

# %% [markdown]
# ## Keep it
# `save` writes safetensors and the plan; `load` gives the same model back.

# %%
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    rankscope.save(compressed, Path(folder) / "small", dense=network, example=(tokens,))
    again = rankscope.load(Path(folder) / "small", into=network)
    print(sorted(path.name for path in (Path(folder) / "small").iterdir()))
with torch.no_grad():
    print("largest difference", float((again(tokens) - after).abs().max()))
