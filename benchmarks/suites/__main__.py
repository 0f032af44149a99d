"""Run a child of a suite: `python -m suites MODULE [WORD …]`, or `MODULE:NAME JSON`.

The first is `python -m MODULE`. The second calls a function with the arguments in the JSON, and
prints what it returns, as JSON. Both note which sources of loopless were imported.
"""

import json
import runpy
import sys
from importlib import import_module

from loopless.bench.sources import note_at_exit

note_at_exit()
del sys.argv[0]
module, _, name = sys.argv[0].partition(":")
if name:
    arguments = json.loads(sys.argv[1])
    print(json.dumps(getattr(import_module(module), name)(*arguments)))
else:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
