"""Which quota applies to whom, and for whom it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.metadata.client_quotas import (
    FETCHED,
    IDLE_MAX_MS,
    PRODUCED,
    SENSORS_MAX,
    ClientQuotas,
    QuotaTable,
)
from config import load
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from storage.metadata.image import QuotaEntity

BY_PRECEDENCE: list[QuotaEntity] = [
    (("client-id", "app"), ("user", "alice")),
    (("client-id", None), ("user", "alice")),
    (("user", "alice"),),
    (("client-id", "app"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
]
ALICE = ("alice", "app")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> ClientQuotas:
    return ClientQuotas(load(overrides={}), clock)


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_the_more_particular_quota_applies(first: int) -> None:
    table = QuotaTable(
        {entity: {PRODUCED: 10.0 + at} for at, entity in enumerate(BY_PRECEDENCE) if at >= first}
    )

    found = table.find(PRODUCED, ALICE)

    assert found is not None
    assert found.quota == 10.0 + first
    assert found.quota_of == BY_PRECEDENCE[first]


def test_a_quota_of_another_key_is_passed_over() -> None:
    table = QuotaTable({BY_PRECEDENCE[0]: {FETCHED: 1.0}, BY_PRECEDENCE[7]: {PRODUCED: 2.0}})

    found = table.find(PRODUCED, ALICE)

    assert found is not None
    assert found.quota == 2.0


def test_quotas_of_others_apply_to_nobody_else() -> None:
    table = QuotaTable({entity: {PRODUCED: 1.0} for entity in (BY_PRECEDENCE[0], BY_PRECEDENCE[2])})

    assert table.find(PRODUCED, ("bob", "app")) is None


def test_nothing_is_active_before_there_is_a_quota_nor_after(quotas: ClientQuotas) -> None:
    seen = [quotas.active]
    entity: QuotaEntity = (("user", None),)
    for quota in (1.0, None):
        quotas.configure({} if quota is None else {entity: {PRODUCED: quota}})
        seen.append(quotas.active)

    assert seen == [False, True, False]


def test_a_quota_of_a_user_counts_all_client_ids_together(quotas: ClientQuotas) -> None:
    quotas.configure({(("user", "alice"),): {PRODUCED: 1000.0}})

    waits = [quotas.produced(("alice", f"app-{number}"), 1_000) for number in range(12)]

    assert waits == [0] * 10 + [1_000, 2_000]
    assert quotas.produced(("bob", "app-1"), 1_000_000) == 0


def test_a_quota_of_any_user_counts_each_by_itself(quotas: ClientQuotas) -> None:
    quotas.configure({(("user", None),): {PRODUCED: 1000.0}})

    assert quotas.produced(("alice", "a"), 11_000) == 1_000
    assert quotas.produced(("alice", "b"), 1_000) == 2_000
    assert quotas.produced(("bob", "a"), 10_000) == 0


def test_a_quota_of_a_client_id_counts_all_users_together(quotas: ClientQuotas) -> None:
    quotas.configure({(("client-id", "app"),): {PRODUCED: 1000.0}})

    assert quotas.produced(("alice", "app"), 10_000) == 0
    assert quotas.produced(("bob", "app"), 1_000) == 1_000


def test_where_there_are_too_many_clients_the_rest_share_one_rate(
    quotas: ClientQuotas, clock: Clock
) -> None:
    quotas.configure({(("client-id", None),): {PRODUCED: 1000.0}})
    for number in range(SENSORS_MAX):
        quotas.produced(("mallory", f"made-up-{number}"), 1)

    assert quotas.produced(("mallory", "one more"), 10_000) == 0
    assert quotas.produced(("mallory", "another"), 1_000) == 1_000
    assert quotas.produced(("mallory", "made-up-7"), 9_999) == 0, "who was known is by itself"

    clock.now_s += IDLE_MAX_MS / 1000
    quotas.expire()
    assert quotas.produced(("mallory", "a new one"), 10_000) == 0
    assert quotas.produced(("mallory", "another new one"), 10_000) == 0


def test_what_is_not_sent_is_not_counted(quotas: ClientQuotas, clock: Clock) -> None:
    quotas.configure({(("user", "alice"),): {FETCHED: 1000.0}})

    assert quotas.fetch_max_bytes(ALICE) == 10_000
    assert quotas.fetched(ALICE, 10_000) == 0
    assert quotas.fetched(ALICE, 10_000) == 10_000
    assert quotas.fetched(ALICE, 1_000) == 1_000
    clock.now_s += 11
    assert quotas.fetched(ALICE, 10_000) == 0


def test_a_batch_beyond_all_windows_is_sent_when_it_is_the_only_one(
    quotas: ClientQuotas, clock: Clock
) -> None:
    quotas.configure({(("user", "alice"),): {FETCHED: 1000.0}})

    assert quotas.fetched(ALICE, 1_000_000) == 0
    assert quotas.fetched(ALICE, 1_000_000) > 0
    clock.now_s += 11
    assert quotas.fetched(ALICE, 1_000_000) == 0


def test_the_share_of_the_loop_is_in_per_cent_and_the_wait_a_window(quotas: ClientQuotas) -> None:
    quotas.configure({(("user", "alice"),): {"request_percentage": 10.0}})

    assert quotas.handled(ALICE, 1.0) == 0
    assert quotas.handled(ALICE, 0.01) == 100
    assert quotas.handled(ALICE, 60.0) == 1_000


def test_clients_that_know_the_error_are_refused_while_they_owe(
    quotas: ClientQuotas, clock: Clock
) -> None:
    quotas.configure({(("user", "alice"),): {"controller_mutation_rate": 1.0}})

    mutations = quotas.mutations(ALICE, strict=True)
    mutations.record(15)
    assert mutations.throttle_ms == 0, "it may be overdrawn"
    with pytest.raises(KafkaError) as caught:
        mutations.record(1)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert mutations.throttle_ms == 4_000

    clock.now_s += 4
    quotas.mutations(ALICE, strict=True).record(1)


def test_older_clients_are_served_and_wait_afterwards(quotas: ClientQuotas) -> None:
    quotas.configure({(("user", "alice"),): {"controller_mutation_rate": 1.0}})

    mutations = quotas.mutations(ALICE, strict=False)
    mutations.record(15)
    mutations.record(1)

    assert mutations.throttle_ms == 5_000


def test_connections_are_counted_by_address(quotas: ClientQuotas) -> None:
    quotas.configure(
        {
            (("ip", "::0001"),): {"connection_creation_rate": 2.0},
            (("ip", None),): {"connection_creation_rate": 1.0},
        }
    )

    assert [quotas.connected("::1") for _ in range(21)] == [0] * 20 + [500]
    assert [quotas.connected("10.0.0.1") for _ in range(12)] == [0] * 10 + [1_000] * 2
    assert quotas.connected("10.0.0.2") == 0
