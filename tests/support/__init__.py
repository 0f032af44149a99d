"""Helpers that tests share: backends, hypothesis strategies, comparison by derived tolerances."""
