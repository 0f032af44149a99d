"""What mkdocs calls while it builds the site: formulas become MathML.

Everything else on a page is in its Markdown file; `site_pages.filling` writes the parts of it that
are made from the code and the results.
"""

from site_pages.maths import Maths


def on_config(config):
    config.markdown_extensions.append(Maths())
    return config
