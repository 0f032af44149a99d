"""`loopless report`: write runs, benchmark results and verdicts as one self-contained page."""
