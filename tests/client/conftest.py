"""The broker that the tests of the client share; each uses topics of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of ours in a process of its own. It keeps records however old their times are."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, settings={"log.retention.ms": "-1"}) as process:
        yield process
