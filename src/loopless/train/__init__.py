"""The trainers, one package each: start with its `algorithm.py`. They share `engine/`."""
