"""Everything that Numba compiles: kernels that take plain NumPy arrays and numbers."""
