"""Write into the pages of `docs/` what is made from the code and the committed results.

    make pages

The text between `<!-- make:NAME [ARGUMENT] -->` and `<!-- end -->` is what `FILLERS[NAME]` returns,
or the API entry if NAME is a public name of loopless; tables of results are between
`<!-- bench:NAME -->` and `<!-- end -->`. All of it is committed, so that the pages can be read
where they lie. A test holds pages and code together.
"""

import re
import sys
from pathlib import Path

from pages import update
from site_pages import api, tables

BLOCK = re.compile(r"(<!-- make:(\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
FILLERS = {
    "metrics": tables.metrics,
    "results": tables.results,
    "claims": tables.claims,
    "commands": tables.commands,
    "environments": tables.environments,
    "mutants": tables.mutants,
    "flags": tables.flags,
}


def fill(text: str) -> str:
    """Return the page with every marked part written anew."""
    return update(BLOCK.sub(_fill, text), tables.RESULTS)


def _fill(match: re.Match) -> str:
    start, name, argument, end = match.groups()
    if name.startswith("loopless."):
        made = api.entry(name)
    elif name in FILLERS:
        made = FILLERS[name](argument) if argument else FILLERS[name]()
    else:
        known = ", ".join(FILLERS)
        raise ValueError(f"docs: nothing makes {name!r}. Use loopless.NAME or one of: {known}.")
    return f"{start}\n{made.strip()}\n\n{end}"


def without_made(text: str) -> str:
    """Return the page without the parts that are made, each line in its place."""
    return BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)


def main(folder: Path) -> None:
    """Write every page of the folder anew."""
    for page in sorted(folder.rglob("*.md")):
        page.write_text(fill(page.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
