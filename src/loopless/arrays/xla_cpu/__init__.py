"""Our own code inside XLA programs on the CPU: matrix products, Adam, and the call frame."""
