"""docs/recipes.md: each recipe is run as a user's test, with real clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.style.sources import CHECKOUT
from tests.testing.test_plugin import TestRun

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.clients
@pytest.mark.long
@pytest.mark.parametrize("recipe", [pytest.param(text, id=title) for title, text in RECIPES])
def test_a_recipe_passes_as_it_stands(recipe: str, tmp_path: Path) -> None:
    run = TestRun(tmp_path)
    (ini,) = re.findall(r"```ini\n\[pytest\]\n(.*?)```", PAGE, flags=re.DOTALL)
    run.write(recipe, ini + "asyncio_mode = auto\n")
    told = run.run(plugins=("pytest_asyncio.plugin",))
    assert "1 passed" in told, told
    assert "a fault never acted" not in told


def test_there_are_ten_of_them_and_each_is_one_test() -> None:
    assert len(RECIPES) == PAGE.count("```python") == 10
    assert all(
        len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) == 1 for _, text in RECIPES
    )


@pytest.mark.clients
@pytest.mark.long
def test_without_idempotence_the_producer_of_the_recipe_duplicates(tmp_path: Path) -> None:
    """What the recipe says of itself, and what makes it a test."""
    (recipe,) = [text for title, text in RECIPES if title == "A producer that does not duplicate"]
    run = TestRun(tmp_path)
    run.write(recipe.replace('"enable.idempotence": True', '"enable.idempotence": False'))
    told = run.run()
    assert "1 failed" in told
    assert "1 duplicates among 2 records" in told
