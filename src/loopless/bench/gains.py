"""The README's first picture: how many times as fast each of the five hot spots became.

An SVG that reads in light and dark pages, written from the same results as the table below it;
`python -m loopless.bench.readme` renews it, and a test keeps it so. Imports `headlines`. Tests:
`tests/test_readme.py`.
"""

from __future__ import annotations

from html import escape
from math import log10
from pathlib import Path

from loopless.bench.headlines import FIVE, gain
from loopless.bench.summary import times as written

PICTURE = Path("docs/images/gains.svg")
WIDTH, LEFT, RIGHT, ROW, TOP = 760, 300, 70, 34, 14
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.axis{font-size:12px;fill:#57606a}"
    ".bar{fill:#1f6feb}.line{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{fill:#9198a1}"
    ".bar{fill:#4493f8}.line{stroke:#3d444d}}"
)


def drawn(results: Path) -> str:
    """Bars on a logarithmic scale, one for each hot spot, beside the loop that it replaces."""
    found = [(headline.what.split(":")[0], gain(headline, results)) for headline in FIVE]
    decades = max(1, int(log10(max(times for _, times in found))) + 1)
    scale, height = (WIDTH - LEFT - RIGHT) / decades, TOP + ROW * len(found) + 30
    parts = []
    for decade in range(decades + 1):
        x, bottom = LEFT + decade * scale, TOP + ROW * len(found)
        parts.append(f'<line class="line" x1="{x:.0f}" x2="{x:.0f}" y1="{TOP}" y2="{bottom}"/>')
        label = f"{10**decade:,}×"
        parts.append(
            f'<text class="axis" x="{x:.0f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
        )
    for number, (what, times) in enumerate(found):
        y, length = TOP + ROW * number, max(2.0, log10(times) * scale)
        middle = y + ROW / 2 + 5
        box = f'x="{LEFT}" y="{y + 6}" width="{length:.0f}" height="{ROW - 12}" rx="3"'
        parts += [
            f'<text x="{LEFT - 12}" y="{middle:.0f}" text-anchor="end">{escape(what)}</text>',
            f'<rect class="bar" {box}/>',
            f'<text x="{LEFT + length + 8:.0f}" y="{middle:.0f}">{written(times)}</text>',
        ]
    title = "How many times as fast as the loop it replaces, on one CPU core"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
