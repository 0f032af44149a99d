"""Trainers, a package each: settings, algorithm, how steps reach it. `engine/` is shared."""
