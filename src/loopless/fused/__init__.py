"""K updates of somebody's own PyTorch module in one compiled call, and acting from its memory."""
