# %% [markdown]
# # Draw your network
#
# An einsum, a family by its name, or a PyTorch module becomes a picture that also computes. Nothing is placed by hand.

# %%
import torch
from torch import nn

import rankscope
from rankscope.diagrams import family, from_einsum

# %% [markdown]
# ## An einsum
# A wire is an index; a wire with more than two ends is a hyperedge.

# %%
from_einsum("ir,jr,kr->ijk", parameters=(0, 1, 2))

# %% [markdown]
# ## A family
# The dashed frame is a softmax that must be finished before anything outside touches it; the diamond is the leg it
# normalizes.

# %%
attention = family("multi-head", N=512, M=512, F=768, H=12, D=64)
attention

# %%
rankscope.cost(attention)

# %% [markdown]
# ## A module of your own
# It is read operation by operation, and runs again from what was drawn.

# %%
layer = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
network = rankscope.from_module(layer, (4, 16))
network

# %%
rebuilt = rankscope.to_module(network, rankscope.diagrams.module_arrays(layer))
inputs = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
print("the same outputs:", torch.allclose(layer(inputs), rebuilt(inputs), atol=1e-6))

# %% [markdown]
# ## Edit it
# Edits are plain objects; `rankscope open` sends the same ones.

# %%
from rankscope.diagrams.editing import Factor, Form, History, SetSize, UseEinsum

history = History().applied(UseEinsum("ijk->ijk"))
history = history.applied(Factor("A", Form.TRAIN, rank=4)).applied(SetSize("r1", 8))
history.present.diagram

# %%
print(rankscope.diagrams.einsum_program(history.present.diagram))
