"""Faults in large numbers: `make torture MINUTES=60 SEED=1`. `__main__` says what there is."""
