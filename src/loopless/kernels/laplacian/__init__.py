"""Losses whose minima are eigenvectors of a Laplacian, and what goes with them."""
