"""Laplacian representations by ALLO. Read `algorithm.py` first; `config.py` has the settings."""
