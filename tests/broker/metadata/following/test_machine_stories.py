"""Every story in scripts/ goes as it is told there."""

from __future__ import annotations

import pytest

from tests.broker.metadata.following.transcripts import SCRIPTS, actual, stories

STORIES = {
    f"{path.stem}: {title}": lines
    for path in sorted(SCRIPTS.glob("*.txt"))
    for title, lines in stories(path).items()
}


def _words(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("lines", STORIES.values(), ids=STORIES.keys())
def test_a_story_goes_as_it_is_told(lines: list[str]) -> None:
    assert _words(actual(lines)) == _words(lines)
