"""Run a module as a child of a suite: `python -m suites MODULE [WORD …]`.

This is `python -m MODULE`, but it also notes which sources of loopless were imported.
"""

import runpy
import sys

from loopless.bench.sources import note_at_exit

note_at_exit()
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
