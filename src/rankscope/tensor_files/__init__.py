"""Tensors in files from strangers: safetensors, `torch.save`, `.npy` and `.npz`."""
