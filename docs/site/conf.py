# The settings of Sphinx for the site that scripts/site builds.

import re

project = html_title = "Flambeau"
extensions = ["myst_parser"]
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
root_doc = "README"
myst_heading_anchors = 4
# "…" in an excerpt marks omitted code, and is not Go.
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]

# The pages in reading order, for the column on the left. Pages of a folder come after its README.
CONTENTS = """

```{toctree}
:hidden:

docs/start/README
docs/guide/README
docs/from-pytorch/README
examples/README
docs/inside/README
CHANGELOG
CONTRIBUTING
```
"""


FOLDER = """

```{toctree}
:hidden:

"""


def contents(app, page, text):
    if page == root_doc:
        text[0] += "\n".join(line for line in CONTENTS.split("\n") if there(app, line))
    elif page == "docs/guide/browser":  # scripts/site puts the program beside the pages
        text[0] = text[0].replace("\n", '\n\n<a href="../../browser/index.html">Try it here.</a>\n', 1)
    elif page.startswith("docs/") and page.endswith("/README"):
        pages = re.findall(r"\]\(([\w.-]+)\.md\)", text[0])  # in the order of its links
        text[0] += FOLDER + "\n".join(dict.fromkeys(pages)) + "\n```\n"


def there(app, line):
    return "/" not in line or (app.srcdir / (line + ".md")).exists()


def setup(app):
    app.connect("source-read", contents)
