"""Run a module as a child of a suite: `python -m suites MODULE [WORD …]`.

It is what `python -m MODULE` does, but that it notes which sources of loopless were imported.
"""

import runpy
import sys

from loopless.bench.sources import note_at_exit

note_at_exit()
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
