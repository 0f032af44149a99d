"""GPT: the model, sampling from it, and weights in GPT-2's format."""
