"""Pages that are made from declarations are as the declarations are, and the others do not lie."""

from __future__ import annotations

import re

import pytest

from docs.generate import pages
from tests.style.pages import PAGES, tokens
from tests.style.sources import BESIDE, CHECKOUT, FLOORS

MARKDOWN = sorted(
    path.relative_to(CHECKOUT).as_posix()
    for place in ("*.md", "docs/**/*.md", "bench/**/*.md", "tests/**/*.md")
    for path in CHECKOUT.glob(place)
    if "node_modules" not in path.parts and ".cache" not in path.parts
)

# A home directory, or a host that packages come from: true for one machine, wrong for all others.
OF_ONE_MACHINE = re.compile(
    r"/(?:root|home/[a-z]\w*|Users/\w+|work/[a-z]\w*)/|https?://[\w.-]*(?:registry|mirror|artifact)"
)


def read(path: str) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(pages()))
def test_a_generated_page_is_what_the_declarations_say(path: str) -> None:
    assert read(path) == pages()[path], "make docs writes it again"


@pytest.mark.parametrize("path", MARKDOWN)
def test_every_link_to_a_file_leads_somewhere(path: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(path))
    folder = (CHECKOUT / path).parent
    broken = [link for link in links if "://" not in link and not (folder / link).exists()]
    assert not broken


def anchors(path: str) -> set[str]:
    """The names by which the headings of a page can be linked."""
    text = re.sub(r"^```.*?^```", "", read(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", MARKDOWN)
def test_every_link_to_a_heading_finds_it(path: str) -> None:
    broken = []
    for page, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", read(path)):
        target = (CHECKOUT / path).parent / page if page else CHECKOUT / path
        if anchor not in anchors(target.resolve().relative_to(CHECKOUT).as_posix()):
            broken.append(f"{page}#{anchor}")
    assert not broken


def test_every_page_is_in_the_list_of_pages() -> None:
    """Which is also the order of the site; the folders' pages are listed in their own READMEs."""
    for listing in sorted((CHECKOUT / "docs").rglob("README.md")):
        listed = set(re.findall(r"\]\(([^)#:]+\.md)\)", listing.read_text(encoding="utf-8")))
        pages = {path.name for path in listing.parent.glob("*.md")} - {"README.md"}
        assert pages <= listed, f"a line in {listing.relative_to(CHECKOUT)}"


@pytest.mark.parametrize("page", [page for page in PAGES if "/decisions/" not in page])
def test_every_page_begins_with_what_it_gives(page: str) -> None:
    title, first = (token for token in tokens(page)[:4:3])
    assert (title.type, first.type) == ("heading_open", "paragraph_open"), "a title, a sentence"
    assert not tokens(page)[4].content.startswith("This page is"), "how it is made comes later"


def test_every_command_that_the_documents_name_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.MULTILINE))
    named = {
        (path, target)
        for path in MARKDOWN
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", read(path), flags=re.MULTILINE)
    }
    assert not {(path, target) for path, target in named if target not in targets}


def test_the_dependencies_have_a_line_that_says_what_they_save() -> None:
    page = read("docs/decisions/0002-dependencies.md")
    for lock in (
        *("requirements.lock", "requirements-security.lock", "requirements-kerberos.lock"),
        *("requirements-dev.lock", "requirements-test.lock", "requirements-site.lock"),
        "requirements-console.lock",
    ):
        for name in re.findall(r"^([\w-]+)==", read(lock), flags=re.MULTILINE):
            assert re.search(rf"\b{name}\b", page, flags=re.IGNORECASE), name


def test_nothing_names_the_machine_it_was_written_on() -> None:
    found = []
    for folder in (".", ".ci", ".github", *FLOORS, *BESIDE):
        for path in (CHECKOUT / folder).glob("*" if folder == "." else "**/*"):
            if not path.is_file() or {"node_modules", "__pycache__", ".cache"} & set(path.parts):
                continue
            if path.suffix == ".so":  # built here, and never committed
                continue
            text = path.read_bytes().decode("utf-8", errors="replace")
            found += [f"{path.name}: {match[0]}" for match in OF_ONE_MACHINE.finditer(text)]
    assert not found
