# %% [markdown]
# # Measure an architecture
#
# How much dependence between two groups of tokens can attention hold? As many products of a function of one group
# and a function of the other as its **separation rank**. It is measured exactly, for almost all weights.

# %%
import rankscope
from rankscope import Partition, SelfAttention

# %% [markdown]
# ## One network
# Two layers of width 4 with two heads, on six tokens that are dealt out in turn.

# %%
network = SelfAttention(depth=2, width=4, heads=2, num_tokens=6)
split = Partition.interleaved(6)
measured = rankscope.measure_rank(network, split)
measured

# %% [markdown]
# ## What theory says
# The upper bound comes with its theorem.

# %%
measured.upper

# %% [markdown]
# ## Depth or width?
# Exact numbers over a small grid: each row is one more layer.

# %%
print("depth  width 2  width 3  width 4")
for depth in (1, 2):
    networks = [SelfAttention(depth=depth, width=size, heads=1, num_tokens=6) for size in (2, 3, 4)]
    ranks = [rankscope.measure_rank(network, split).lower for network in networks]
    print(f"{depth:5}  " + "  ".join(f"{rank:7,}" for rank in ranks))

# %% [markdown]
# ## A proof to give away
# A certificate is a small file. Whoever has it checks the claim without trusting us.

# %%
certificate = rankscope.certify_rank(network, split, measured)
certificate

# %%
rankscope.verify(certificate)
