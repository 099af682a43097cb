"""Telling the scripts to a broker, and preparing it for that."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.update_features import UpdateFeaturesRequest
from tests.clients.transactions import coordinator_verbs, group_verbs, partition_verbs
from tests.clients.transactions.conversation import (
    NOT_READY,
    Conversation,
    NoProducer,
    NotOffered,
    until,
)
from tests.support.caller import Caller
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.clients.transactions.scripts import Script, Step
    from tests.support.server_process import ServerProcess

VERBS = {**coordinator_verbs.VERBS, **partition_verbs.VERBS, **group_verbs.VERBS}

NOT_OFFERED = "(not offered)"
TRANSACTION_VERSION, METADATA_VERSION = "transaction.version", "metadata.version"
METADATA_VERSION_OF_4_0 = 22
UPGRADE, SAFE_DOWNGRADE = 1, 2

#: Scripts hardly keep a broker busy: they wait for time-outs and for what it does by and by.
AT_ONCE = 8
#: So many transactional ids that every partition of the coordinator's topic has had one.
WARMING_IDS = 40

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of a broker that is told the scripts."""

#: The answers to the steps of a script, by its title and version.
Told = dict[tuple[str, int | None], list[str]]


def tell(server: ServerProcess, script: Script, version: int | None) -> list[str]:
    """What the broker answers to each step."""
    talk = Conversation(server, f"{os.urandom(5).hex()}-")
    try:
        return [_answer(talk, step) for step in script.steps(version)]
    finally:
        talk.close()


def _answer(talk: Conversation, step: Step) -> str:
    try:
        return VERBS[step.verb](talk, step)
    except NotOffered:
        return NOT_OFFERED
    except NoProducer:
        return "(no producer)"
    except ConnectionClosed:
        talk.close()
        talk.connect()
        return "(connection closed)"
    except TimeoutError:
        talk.close()
        talk.connect()
        return "(no answer)"


def tell_all(server: ServerProcess, scripts: Iterable[Script]) -> Told:
    """Every script in each of its versions, many at once."""
    asked = [(script, version) for script in scripts for version in script.versions]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = threads.map(lambda one: tell(server, *one), asked)
        return {
            (script.title, version): told
            for (script, version), told in zip(asked, answers, strict=True)
        }


def prepare(server: ServerProcess, transaction_version: int | None) -> None:
    """Set the feature, where a level is given, and wait until every coordinator is at work."""
    with Caller(server.host, server.port) as caller:
        if transaction_version is not None:
            set_transaction_version(caller, transaction_version)
        caller.call(FindCoordinatorRequest(key="warm", key_type=0), 1)
        for number in range(WARMING_IDS):
            name = f"warm-{number}"
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            codes: list[int] = []

            def answered(request: InitProducerIdRequest = request, name: str = name) -> bool:
                found = caller.call(FindCoordinatorRequest(key=name, key_type=1), 1)
                codes.append(found.error_code)  # noqa: B023
                if not found.error_code:
                    with Caller(found.host, found.port) as coordinator:
                        codes.append(coordinator.call(request, 1).error_code)  # noqa: B023
                return codes[-1] not in NOT_READY  # noqa: B023

            assert until(answered), "the coordinator does not get ready"
            assert codes[-1] == 0, f"InitProducerId is answered {ErrorCode(codes[-1]).name}"


def set_transaction_version(caller: Caller, level: int) -> None:
    """Finalize `transaction.version` at this level, and wait until the broker says so.

    From level 1 on it needs the metadata version of Kafka 4.0, which is set first if it is lower.
    """
    if level and finalized_level(caller, METADATA_VERSION) < METADATA_VERSION_OF_4_0:
        _finalize(caller, METADATA_VERSION, METADATA_VERSION_OF_4_0)
    if finalized_level(caller, TRANSACTION_VERSION) != level:
        _finalize(caller, TRANSACTION_VERSION, level)


def finalized_level(caller: Caller, feature: str) -> int:
    """What ApiVersions says of a feature; 0 if it does not name it."""
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = caller.call(request, 3)
    levels = {entry.name: entry.max_version_level for entry in answer.finalized_features}
    level: int = levels.get(feature, 0)
    return level


def _finalize(caller: Caller, feature: str, level: int) -> None:
    kind = UPGRADE if level > finalized_level(caller, feature) else SAFE_DOWNGRADE
    update = UpdateFeaturesRequest.FeatureUpdate(
        feature=feature, max_version_level=level, upgrade_type=kind
    )
    answer = caller.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
    refused = [answer.error_message, *(entry.error_message for entry in answer.results)]
    codes = {answer.error_code, *(entry.error_code for entry in answer.results)}
    assert codes == {0}, refused
    assert until(lambda: finalized_level(caller, feature) == level)
