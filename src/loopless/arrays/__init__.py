"""What differs between NumPy, PyTorch and JAX: dispatch, checks, scans, logits, calls from XLA."""
