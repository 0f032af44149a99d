"""The parts of our pages that are made from the code and the results."""
