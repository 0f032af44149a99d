"""The harness of `loopless bench`: it checks contenders, times them, and keeps what it measured.

What is raced lies outside of the package, in `benchmarks/suites`. Start reading at `contest.py`.
"""
