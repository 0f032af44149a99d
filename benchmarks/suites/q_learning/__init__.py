"""The suite `q_learning`: K updates in one call against eager PyTorch, and the loss alone."""
