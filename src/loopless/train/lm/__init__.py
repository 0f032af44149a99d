"""Language models. Read `algorithm.py` first; `config.py` has the settings."""
