"""Grid worlds: layouts, their tables, and exact Laplacians."""
