"""Turn the formulas `$…$` and `$$…$$` of a page into MathML while the site is built.

Browsers draw MathML by themselves, so the site needs neither a script nor a network for it. GitHub
understands the same dollar signs when it shows the Markdown files.
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
    """Return the formula as a <math> element; ValueError if a command in it is unknown."""
    text = convert(latex.replace("{aligned}", "{align*}"), display=display)
    if unread := re.findall(r"<m[io]>(\\\w+|&)</m[io]>", text):
        raise ValueError(f"docs: cannot read {unread[0]} in ${latex}$.")
    # Browsers ignore columnalign, because MathML Core leaves alignment to CSS.
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
    """The extension of Markdown that handles both kinds of formulas."""

    def extendMarkdown(self, md: Markdown) -> None:
        # This runs after blocks of code are stashed (25) and before HTML is (20).
        md.preprocessors.register(_Display(md), "display_maths", 22)
        # This runs after `code` in backticks (190) and before escapes (180) and emphasis.
        md.inlinePatterns.register(_Inline(INLINE, md), "inline_maths", 185)
