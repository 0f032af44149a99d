"""Fill in the parts of the site that come from the code and the results, while mkdocs builds it.

In a page, a line `::: NAME [ARGUMENT]` is replaced by the text that the function `FILLERS[NAME]`
returns, and a line `::: loopless.x` by the API entry of that name. Tables between the marks
`<!-- bench:… -->` and `<!-- end -->` are made from the committed JSON. The functions that write
these texts are in `site_pages`.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from site_pages import api, tables
from site_pages.maths import Maths

from pages import update

DIRECTIVE = re.compile(r"^::: (\S+)(?: (\S+))?$", re.MULTILINE)
FILLERS = {
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
    return update(DIRECTIVE.sub(_fill, markdown), tables.RESULTS)


def _fill(match: re.Match) -> str:
    name, argument = match.groups()
    if name.startswith("loopless."):
        return api.entry(name)
    if name not in FILLERS:
        known = ", ".join(FILLERS)
        raise ValueError(f"docs: unknown directive {name!r}. Use loopless.NAME or one of: {known}.")
    return FILLERS[name](argument) if argument else FILLERS[name]()
