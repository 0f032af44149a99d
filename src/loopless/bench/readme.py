"""The tables of our pages, made from the committed JSON: `python -m loopless.bench.readme PAGE…`.

Between `<!-- bench:SUITE -->` and `<!-- end -->` stands what the suite's layout makes of
benchmarks/results/SUITE.json (of several, where SUITE is one of `headlines.TABLES`), and a test
keeps it so. The picture of `gains` is renewed with them. Imports `headlines`, `result` and
`suites`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from loopless.bench import gains, headlines
from loopless.bench.result import load
from loopless.bench.suites import layout

RESULTS = Path("benchmarks/results")
BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def update(text: str, results: Path) -> str:
    """The page with every marked table renewed from the files in `results`."""

    def renew(match: re.Match) -> str:
        start, suite, end = match.groups()
        if suite in headlines.TABLES:
            lines = headlines.rendered(suite, results)
        else:
            lines = layout(suite).rendered(load(results / f"{suite}.json"))
        return start + "\n".join(lines) + "\n" + end

    return BLOCK.sub(renew, text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(update(page.read_text(), RESULTS))
    gains.PICTURE.write_text(gains.drawn(RESULTS))
