"""ListTransactions of many ids: others are served meanwhile, and no pattern holds up the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker import pending
from broker.regular_expressions import BoundedMatch
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.fake_connection import InProcessBroker
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDS = [f"id-{number}" for number in range(40)]
LONG = "x" * 30_000


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessBroker]:
    monkeypatch.setattr(pending, "SLICE_S", 0)  # one id in each
    with InProcessBroker(tmp_path / "data") as found:
        asker = Asker(found)
        asker.call(FindCoordinatorRequest(key="x", key_type=1), 1)
        for transactional_id in (*IDS, LONG):
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=1000
            )
            assert asker.call(request, 4).error_code == 0
        yield found


def listing(pattern: str | None = None) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
    )


def test_others_are_served_while_many_ids_are_listed(broker: InProcessBroker) -> None:
    one, other = Asker(broker), Asker(broker)
    one.send(listing("id-.*"))
    assert one.answers() == []

    other.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)

    assert one.answers() == []
    broker.turn_until(lambda: bool(one.answers()))
    (answer,) = one.answers()
    assert answer.error_code == 0
    assert sorted(found.transactional_id for found in answer.transaction_states) == sorted(IDS)


def test_for_a_client_that_is_gone_no_id_is_looked_at_any_more(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []

    def match(_: BoundedMatch, text: str) -> bool:
        looked_at.append(text)
        return True

    monkeypatch.setattr(BoundedMatch, "__call__", match)
    one, other = Asker(broker), Asker(broker)
    one.send(listing(".*"))
    assert len(looked_at) == 1

    one.fake.lose()

    other.call(listing("id-.*"))  # which goes over all
    assert len(looked_at) == 1 + len([*IDS, LONG])


def test_a_broker_that_stops_says_so_to_who_waits_for_a_list(broker: InProcessBroker) -> None:
    one = Asker(broker)
    one.send(listing())

    one.fake.connection.close()

    (answer,) = one.answers()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_pattern_that_is_too_much_work_for_one_id_is_refused(broker: InProcessBroker) -> None:
    one = Asker(broker)

    assert one.call(listing("(ab|c){40}.*")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert one.call(listing("x*")).error_code == 0
