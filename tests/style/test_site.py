"""The site of the documentation, as `make site` builds it, looked through for what it needs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.clients.available import end_of_test
from tests.style.sources import CHECKOUT

pytestmark = pytest.mark.long

NEEDED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches by itself to show a page: elements, and where they say it."""


class Page(HTMLParser):
    """The addresses that a page fetches, those that it leads to, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.needed: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.anchors.add(told.get("id", ""))
        if tag in NEEDED and NEEDED[tag] in told:
            self.needed.append(told[NEEDED[tag]])
        if tag == "a" and "href" in told:
            self.links.append(told["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("furo") is None:
        end_of_test("python", "Sphinx is not installed (make site)")
    into = tmp_path_factory.mktemp("site") / "site"
    recipe = (CHECKOUT / "Makefile").read_text(encoding="utf-8").partition("\nsite: ")[2]
    command = recipe[recipe.index("-m sphinx") : recipe.index("\n\tcp ")].replace("\\\n", " ")
    words = [word.replace("build/site", str(into)) for word in command.split()]
    ran = subprocess.run(
        [sys.executable, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return into


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_a_page_fetches_nothing_from_elsewhere(built: dict[Path, Page]) -> None:
    for path, page in built.items():
        for address in page.needed:
            assert not urlsplit(address).netloc, (path.name, address)
    (style,) = {
        (path.parent / urlsplit(address).path).resolve()
        for path, page in built.items()
        for address in page.needed
        if urlsplit(address).path.endswith("styles/furo.css")
    }
    assert "url(http" not in style.read_text(encoding="utf-8")


def test_every_link_within_the_site_leads_to_a_page_and_a_place_on_it(
    built: dict[Path, Page],
) -> None:
    broken = []
    for path, page in built.items():
        for address in page.links + page.needed:
            parts = urlsplit(address)
            if parts.netloc or parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = built[target].anchors if target in built else {parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken.append((path.name, address))
    assert not broken


def test_all_pages_are_there_and_the_search_knows_their_words(site: Path) -> None:
    pages = {path.relative_to(CHECKOUT) for path in (CHECKOUT / "docs").rglob("*.md")}
    assert {page.with_suffix(".html") for page in pages} <= {
        path.relative_to(site) for path in site.rglob("*.html")
    }
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"watchdog", "parquet", "kerbero"} <= set(found["terms"])  # as stems
