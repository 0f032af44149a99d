"""Laplacian representations by ALLO."""
