"""The proxy of faults in the loop of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.proxied import Proxied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def proxied() -> AsyncIterator[Proxied]:
    async with Proxied() as found:
        yield found
