"""How Sphinx makes the pages of the repository a site: `make site`.

The pages are read where they stand, from the root of the checkout, so that a link means the same in
the repository and on the site. Their order is that of docs/README.md: a chapter for each of its
headings, with the pages that are linked below it. Programs that a page links to are pages, too.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers import Parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("docs/**/*.md", "bench/README.md", "bench/results/*.md"),
)
LANGUAGES = {".py": "python", ".yml": "yaml"}
"""Of the linked files that are shown as pages. Others are there to be fetched."""


def linked_files() -> list[str]:
    """The files of LANGUAGES that a page links to, as paths below the checkout."""
    found: set[str] = set()
    for page in chain.from_iterable(CHECKOUT.glob(pattern) for pattern in PAGES):
        for link in re.findall(r"\]\(([\w./-]+)", page.read_text(encoding="utf-8")):
            path = (page.parent / link).resolve()
            if path.suffix in LANGUAGES:
                found.add(path.relative_to(CHECKOUT).as_posix())
    return sorted(found)


project = "triglot"
root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"} | dict.fromkeys(LANGUAGES, "program")
# In the patterns of Sphinx `**` goes through folders by itself.
include_patterns = [*(pattern.replace("**/*", "**") for pattern in PAGES), *linked_files()]
exclude_patterns = [".*", "build", "data", "dist", "node_modules", "**/.cache"]
nitpicky = True
myst_heading_anchors = 4  # by the names that code forges give them

highlight_language = "text"  # of blocks that do not name one

html_theme = "furo"
html_title = "triglot"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


class ProgramPage(Parser):
    """A page that shows a program as it is."""

    supported = ("program",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        path = Path(document["source"]).relative_to(CHECKOUT)
        shown = nodes.literal_block(inputstring, inputstring, language=LANGUAGES[path.suffix])
        section = nodes.section(ids=["program"])
        section += [nodes.title(text=path.as_posix()), shown]
        document += section
        document.settings.env.metadata[path.with_suffix("").as_posix()]["orphan"] = True


def chapters() -> str:
    """A table of contents for each heading of docs/README.md, and that page before them."""
    text = (CHECKOUT / "docs/README.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    made = contents(["docs/README"])
    for caption, listed in zip(parts[::2], parts[1::2], strict=True):
        pages = re.findall(r"\]\(([^)#:]+)\.md\)", listed)
        made += contents([f"docs/{page}" for page in pages], f":caption: {caption}")
    return made


def contents(pages: list[str], *options: str) -> str:
    """MyST's directive that puts these pages below the page in which it stands."""
    return "\n".join(["\n\n```{toctree}", ":hidden:", *options, "", *pages, "```\n"])


CONTENTS: dict[str, Callable[[], str]] = {
    "README": chapters,
    "docs/decisions/README": lambda: contents(["*"], ":glob:"),
    "docs/formats/README": lambda: contents(["*"], ":glob:"),
    "bench/results/page": lambda: contents(["*"], ":glob:", ":reversed:"),
}
"""What is added to pages that have others below them."""


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    if name in CONTENTS:
        source[0] += CONTENTS[name]()


def setup(app: Sphinx) -> None:
    app.add_source_parser(ProgramPage)
    app.connect("source-read", add_contents)
