"""Buffers in the host's memory: NumPy arrays, sampled by compiled code."""
