"""Environments as pure JAX functions, for use inside a compiled program."""
