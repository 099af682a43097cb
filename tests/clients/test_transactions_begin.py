"""Every client that has transactions gets a producer that is ready for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import EVERY_CLIENT

if TYPE_CHECKING:
    from tests.clients.drivers.driver import Driver

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)
def test_every_client_can_begin_transactions_again_and_again(
    client: Driver, bootstrap: str
) -> None:
    transactional_id = client.name.replace(" ", "-")
    for _ in range(2):
        client.begin_transactions(bootstrap, transactional_id)
