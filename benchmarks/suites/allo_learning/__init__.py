"""The suite `allo_learning`: the paper's results on Laplacian representations, over seeds."""
