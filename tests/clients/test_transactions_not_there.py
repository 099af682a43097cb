"""A producer that wants transactions hears at once, and in its own words, that there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.available import EVERY_CLIENT
from tests.clients.drivers.driver import Refused

if TYPE_CHECKING:
    from tests.clients.drivers.driver import Driver

pytestmark = pytest.mark.clients

#: librdkafka takes few codes for final, and none of them says this.
OTHER_WORDS = {"confluent-kafka": "transaction timeout is larger"}
WORDS = ("not supported", "unsupportedversion")


@pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)
def test_every_client_takes_the_refusal_of_a_transactional_id_as_final(
    client: Driver, bootstrap: str
) -> None:
    with pytest.raises(Refused) as refusal:
        client.begin_transactions(bootstrap, "bank")

    said = str(refusal.value).lower()
    assert "authorization" not in said
    library = client.name.partition(" ")[0]
    words = (OTHER_WORDS[library],) if library in OTHER_WORDS else WORDS
    assert any(one in said for one in words), said
