"""Networks: Equinox modules on batches, and the way a policy acts without JAX."""
