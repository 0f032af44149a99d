"""Children of a test find the suites, whichever test runs first."""

from loopless.bench.suites import names

names()  # makes them importable here, and in processes that are started from here
