"""Trainers, one a file, each read top to bottom; what they share lives in `runs`."""
