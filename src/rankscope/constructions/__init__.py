"""Explicit networks that prove theorems on expressivity, and the parts that networks are made of.

Nothing is trained here. Import from the module that a name belongs to: `piecewise_linear`,
`approximation`, `obstructions`, `explicit_networks`, `regions`, `regions_space`, `activations`,
`dead_units`, `weight_sharing`, `learning`, `blocks`, `attention`.
"""
