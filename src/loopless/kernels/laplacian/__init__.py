"""Losses whose minima are eigenvectors of a Laplacian, multipliers, and measures of the result."""
