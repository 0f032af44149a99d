"""The harness of `loopless bench`: it checks contenders, times them, and stores the results.

The suites, which say what is raced, are outside this package, in `benchmarks/suites`. Start
reading at `contest.py`.
"""
