"""Language models by AvataRL. Read `algorithm.py` first; `config.py` has the settings."""
