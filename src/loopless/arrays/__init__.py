"""What differs between NumPy, PyTorch and JAX: library lookup, input checks, the scan engines."""
