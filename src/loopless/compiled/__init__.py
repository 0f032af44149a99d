"""Everything that Numba compiles; `jit` says how. Nothing here is imported before it is called."""
