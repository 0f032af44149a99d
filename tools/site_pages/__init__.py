"""What the documentation shows of the code and its results. Not part of the library."""
