"""What the tests share: the backends, hypothesis strategies, comparison by derived tolerances."""
