"""`$…$` and `$$…$$` in Markdown become MathML while the site is built: no script, no network.

Browsers draw MathML by themselves, and GitHub reads the same dollars. Imports Markdown and
latex2mathml. Tests: `tests/test_docs_site.py`.
"""

import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

DISPLAY = re.compile(r"^( *)\$\$\n(.+?)\n *\$\$$", re.DOTALL | re.MULTILINE)
INLINE = r"(?<![\\$\w])\$(?=[^\s$])([^$\n]*?[^\s$\\])\$(?![\w$])"


def mathml(latex: str, display: str = "inline") -> str:
    """The formula as a <math> element; ValueError for what the converter passes through unread."""
    text = convert(latex.replace("{aligned}", "{align*}"), display=display)
    if unread := re.findall(r"<m[io]>(\\\w+|&)</m[io]>", text):
        raise ValueError(f"docs: cannot read {unread[0]} in ${latex}$.")
    # Browsers know no columnalign: in MathML Core alignment is a matter of style.
    return re.sub(r'columnalign="(\w+)"', r'style="text-align:\1"', text)


class _Display(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        def stash(match: re.Match) -> str:
            return match[1] + self.md.htmlStash.store(mathml(match[2], "block"))

        return DISPLAY.sub(stash, "\n".join(lines)).split("\n")


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match, data: str):
        return self.md.htmlStash.store(mathml(m[1])), m.start(0), m.end(0)


class Maths(Extension):
    """For Markdown's list of extensions."""

    def extendMarkdown(self, md: Markdown) -> None:
        # Blocks of code have been put away by then (25), HTML has not (20).
        md.preprocessors.register(_Display(md), "display_maths", 22)
        # After `code` in backticks (190), before escapes (180) and emphasis.
        md.inlinePatterns.register(_Inline(INLINE, md), "inline_maths", 185)
