"""One engine for all tests of this folder; its images and containers go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import end_of_test
from tests.containers.engine import Engine
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    try:
        engine = Engine(tmp_path_factory.mktemp("containers"))
    except NotAvailable as reason:
        end_of_test("containers", str(reason))
    yield engine
    engine.close()
