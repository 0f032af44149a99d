"""`loopless report`: runs and results of benchmarks as one page that needs nothing but itself."""
