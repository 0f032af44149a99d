"""What mkdocs calls while it builds the site: it fills in what comes from code and results.

A line `::: NAME [ARGUMENT]` in a page stands for what `FILLED` makes of it, and `::: loopless.x`
for the API entry of that name; tables between `<!-- bench:… -->` marks are those of the JSON.
Imports `site_pages`, beside this file. Tests: `tests/test_docs_site.py`.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from site_pages import api, tables
from site_pages.maths import Maths

from pages import update

DIRECTIVE = re.compile(r"^::: (\S+)(?: (\S+))?$", re.MULTILINE)
FILLED = {
    "metrics": tables.metrics,
    "results": tables.results,
    "claims": tables.claims,
    "commands": tables.commands,
    "environments": tables.environments,
    "mutants": tables.mutants,
    "flags": tables.flags,
}


def on_config(config):
    config.markdown_extensions.append(Maths())
    return config


def on_page_markdown(markdown: str, **_) -> str:
    return update(DIRECTIVE.sub(_filled, markdown), tables.RESULTS)


def _filled(match: re.Match) -> str:
    name, argument = match.groups()
    if name.startswith("loopless."):
        return api.entry(name)
    if name not in FILLED:
        raise ValueError(f"docs: nothing is called {name!r}. There is: {', '.join(FILLED)}.")
    return FILLED[name](argument) if argument else FILLED[name]()
