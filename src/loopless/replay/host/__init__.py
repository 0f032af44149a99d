"""Buffers in the host's memory or in mapped files: NumPy arrays, sampled by compiled kernels."""
