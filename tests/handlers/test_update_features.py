"""UpdateFeatures, versions 0 to 2, and what ApiVersions says of features."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.logdata.metadata import FeatureLevelRecord
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.administrator import Administrator
from tests.support.caller import Caller
from tests.support.running_controller import RunningController

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.broker_process import BrokerProcess

VERSIONS = range(3)
UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA_VERSION, KRAFT_VERSION = "metadata.version", "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
NEW = 21
"""metadata.version of a new directory."""
REFUSED = ErrorCode.INVALID_UPDATE_VERSION

Change = UpdateFeaturesRequest.FeatureUpdate


def change(name: str, level: int, upgrade_type: int = UPGRADE) -> Change:
    """For every version: before 1 a downgrade is allowed or not."""
    return Change(
        feature=name,
        max_version_level=level,
        upgrade_type=upgrade_type,
        allow_downgrade=upgrade_type != UPGRADE,
    )


def update(
    caller: Caller, *changes: Change, version: int = 1, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(changes), validate_only=validate_only)
    answer: UpdateFeaturesResponse = caller.call(request, version)
    return answer


def codes(answer: UpdateFeaturesResponse) -> dict[str, int]:
    """By feature, where all of them could be changed."""
    assert answer.error_code == 0, answer.error_message
    return {result.feature: result.error_code for result in answer.results}


def is_refused(answer: UpdateFeaturesResponse) -> bool:
    return (answer.error_code, answer.results) == (REFUSED, [])


def features(caller: Caller, version: int = 4) -> ApiVersionsResponse:
    who = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    answer: ApiVersionsResponse = caller.call(who, version)
    assert answer.error_code == 0
    return answer


def level(caller: Caller) -> int:
    """The metadata.version that holds."""
    return finalized(caller)[METADATA_VERSION]


def finalized(caller: Caller) -> dict[str, int]:
    """The levels that hold, by the names of the features."""
    found = features(caller).finalized_features
    assert all(feature.min_version_level == feature.max_version_level for feature in found)
    return {feature.name: feature.max_version_level for feature in found}


@pytest.fixture
def own(own_broker: BrokerProcess) -> Iterator[Administrator]:
    """A connection to a broker whose features this test may change."""
    own_broker.start()
    with Administrator(own_broker.host, own_broker.port) as caller:
        yield caller


# What Apache Kafka 3.9 says of a new directory, but for the levels that Kafka 4 has no name for.
def test_clients_are_told_which_features_there_are_and_which_hold(caller: Caller) -> None:
    answer = features(caller)

    assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
        (GROUP_VERSION, 0, 1),
        (KRAFT_VERSION, 0, 1),
        (METADATA_VERSION, 7, NEW),
        (TRANSACTION_VERSION, 0, 2),
    ]
    assert finalized(caller) == {METADATA_VERSION: NEW}
    assert answer.finalized_features_epoch > 0
    assert not answer.zk_migration_ready


def test_the_levels_that_are_told_are_those_that_tools_can_name_and_that_of_the_log(
    tmp_path: Path,
) -> None:
    told = []
    with RunningController(tmp_path / "data") as node, node.connect_as_client() as caller:
        for held in (5, NEW, 30):
            record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=held)
            node.run(functools.partial(node.controller.append, [record]))
            found = features(caller).supported_features
            told += [(f.min_version, f.max_version) for f in found if f.name == METADATA_VERSION]

    assert told == [(5, NEW), (7, NEW), (7, 30)]


def test_older_clients_are_not_told_of_features_that_begin_at_level_0(caller: Caller) -> None:
    older = features(caller, 3)

    assert [feature.name for feature in older.supported_features] == [METADATA_VERSION]
    assert older.finalized_features == features(caller).finalized_features
    assert features(caller, 2).supported_features == []


def test_the_epoch_of_the_features_grows_with_the_metadata(caller: Caller, topic: str) -> None:
    before = features(caller).finalized_features_epoch

    caller.create_topic(topic)

    assert features(caller).finalized_features_epoch > before


# Asked of Apache Kafka 3.9, at level 21 like us. (It knows nothing above, and 4.3 has this code for
# a level that it does not know.)
@pytest.mark.parametrize(
    ("to", "upgrade_type", "code"),
    [
        *((NEW, kind, 0) for kind in (UPGRADE, SAFE, UNSAFE)),
        *((to, kind, REFUSED) for to in (0, -1, 34, 99) for kind in (UPGRADE, SAFE, UNSAFE)),
        *((to, UPGRADE, REFUSED) for to in (1, 3, 4, 14, 19, 20)),
        *((to, kind, 0) for to in (17, 18, 19, 20) for kind in (SAFE, UNSAFE)),
        *((to, kind, REFUSED) for to in (1, 3, 4, 5, 14, 15, 16) for kind in (SAFE, UNSAFE)),
        *((20, kind, REFUSED) for kind in (0, 4, -1)),
        *((to, UPGRADE, 0) for to in (22, 33)),
        *((to, kind, REFUSED) for to in (22, 33) for kind in (SAFE, UNSAFE)),
    ],
)
def test_a_level_is_taken_or_refused_and_asking_changes_nothing(
    caller: Caller, to: int, upgrade_type: int, code: int
) -> None:
    wanted = change(METADATA_VERSION, to, upgrade_type)

    for version in (1, 2):
        answer = update(caller, wanted, validate_only=True, version=version)

        assert answer.error_code == code
        assert bool(answer.error_message) == bool(code)
        has_results = version == 1 and not code
        assert [result.feature for result in answer.results] == [METADATA_VERSION] * has_results
    assert level(caller) == NEW


@pytest.mark.parametrize("version", VERSIONS)
def test_the_level_is_lowered_and_raised_and_outlives_a_restart(
    own: Administrator, own_broker: BrokerProcess, version: int
) -> None:
    answer = update(own, change(METADATA_VERSION, 20, SAFE), version=version)
    assert (answer.error_code, codes(answer)) == (0, {METADATA_VERSION: 0} if version < 2 else {})
    assert level(own) == 20
    update(own, change(METADATA_VERSION, 25), version=version)
    assert level(own) == 25
    own.create_topic("t", partitions=2)  # records of level 25
    before = own.facts()

    own_broker.kill()
    own_broker.start()

    with Administrator(own_broker.host, own_broker.port) as caller:
        assert level(caller) == 25
        assert caller.facts().topics.keys() == before.topics.keys()
        refused = update(caller, change(METADATA_VERSION, NEW, SAFE))
        assert is_refused(refused), "level 23 has other records"


def test_version_0_lowers_only_where_that_is_allowed(own: Administrator) -> None:
    refused = update(own, change(METADATA_VERSION, 19, UPGRADE), version=0)
    allowed = update(own, change(METADATA_VERSION, 20, SAFE), version=0)

    assert is_refused(refused)
    assert codes(allowed) == {METADATA_VERSION: 0}
    assert level(own) == 20


# Kafka 4.3 answers so in all versions; 3.9, which has 0 and 1, for each feature by itself. sarama
# asks with version 1 and expects the code at the top (TestFuncAdminUpdateFeatures).
@pytest.mark.parametrize("version", VERSIONS)
def test_all_features_are_changed_or_none(own: Administrator, version: int) -> None:
    good, bad = change(METADATA_VERSION, 20, SAFE), change("foo", 1)

    for changes in ((bad,), (good, bad), (bad, good)):
        for validate_only in (True, False):
            answer = update(own, *changes, version=version, validate_only=validate_only)
            assert is_refused(answer)
            assert "foo" in (answer.error_message or "")
    assert level(own) == NEW

    update(own, good, version=version)
    assert level(own) == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_feature_that_is_named_twice_the_last_one_counts(
    own: Administrator, version: int
) -> None:
    update(own, change(METADATA_VERSION, 99), change(METADATA_VERSION, 22), version=version)

    assert level(own) == 22


# At 22 Kafka 4 serves consumer groups of KIP-848, if the log says so; 3.9 opens none above 21, and
# does not start where a log of 21 names group.version 1.
@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_of_groups_goes_with_that_of_the_metadata(
    own: Administrator, own_broker: BrokerProcess, version: int
) -> None:
    update(own, change(METADATA_VERSION, 22), version=version)
    assert finalized(own) == {METADATA_VERSION: 22, GROUP_VERSION: 1}
    update(own, change(METADATA_VERSION, 21, SAFE), version=version)
    assert finalized(own) == {METADATA_VERSION: 21}
    update(own, change(METADATA_VERSION, 33), version=version)
    own_broker.kill()
    own_broker.start()
    with Administrator(own_broker.host, own_broker.port) as caller:
        assert finalized(caller) == {
            METADATA_VERSION: 33,
            GROUP_VERSION: 1,
            TRANSACTION_VERSION: 2,
        }


def test_the_version_of_groups_is_what_was_asked_for(own: Administrator) -> None:
    group_version, metadata_version = change(GROUP_VERSION, 1), change(METADATA_VERSION, 22)

    refused = update(own, group_version)
    assert is_refused(refused)
    assert refused.error_message == (
        "no feature was changed: group.version 1 needs metadata.version 22 (4.0-IV0), it is 21 "
        "(3.9-IV0), and a Kafka of that level does not start where the log names it"
    )
    both = update(own, group_version, metadata_version)
    assert codes(both) == {GROUP_VERSION: 0, METADATA_VERSION: 0}
    update(own, change(GROUP_VERSION, 0, SAFE))
    update(own, change(METADATA_VERSION, 23))
    assert finalized(own) == {METADATA_VERSION: 23}
    update(own, group_version)
    assert finalized(own) == {METADATA_VERSION: 23, GROUP_VERSION: 1}


@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_the_version_of_the_quorum_stays_as_it_is(caller: Caller, kind: int) -> None:
    assert codes(update(caller, change(KRAFT_VERSION, 0, kind))) == {KRAFT_VERSION: 0}
    assert is_refused(update(caller, change(KRAFT_VERSION, 1, kind)))
    assert is_refused(update(caller, change(KRAFT_VERSION, 2, kind)))


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_asked_for_is_done(caller: Caller, version: int) -> None:
    answer = update(caller, version=version)

    assert (answer.error_code, codes(answer)) == (0, {})


def test_what_the_level_has_no_record_for_is_refused_until_it_is_raised(tmp_path: Path) -> None:
    older = FeatureLevelRecord(name=METADATA_VERSION, feature_level=10)  # as Kafka 3.5 formats
    with RunningController(tmp_path / "data") as node, node.connect_as_client() as caller:
        node.run(lambda: node.controller.append([older]))
        assert level(caller) == 10
        upsertion = AlterUserScramCredentialsRequest.Upsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])

        (refused,) = caller.call(request, 0).results
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "needs metadata.version 11" in refused.error_message
        assert codes(update(caller, change(METADATA_VERSION, 11))) == {METADATA_VERSION: 0}
        (taken,) = caller.call(request, 0).results
        assert taken.error_code == 0


def test_the_listener_of_the_controller_has_the_same_features(tmp_path: Path) -> None:
    with RunningController(tmp_path / "data") as node, node.connect() as caller:
        assert level(caller) == NEW
        assert codes(update(caller, change(METADATA_VERSION, 22))) == {METADATA_VERSION: 0}
        with node.connect_as_client() as client:
            assert level(client) == 22


def test_the_version_of_transactions_goes_with_that_of_the_metadata_unless_it_is_named(
    own: Administrator,
) -> None:
    update(own, change(METADATA_VERSION, 24))
    assert finalized(own)[TRANSACTION_VERSION] == 2
    assert codes(update(own, change(TRANSACTION_VERSION, 1, SAFE))) == {TRANSACTION_VERSION: 0}
    assert finalized(own)[TRANSACTION_VERSION] == 1
    update(own, change(METADATA_VERSION, 25))
    assert finalized(own)[TRANSACTION_VERSION] == 1


def test_a_version_of_transactions_that_kafka_3_9_can_not_read_is_refused_where_it_may_come(
    own: Administrator,
) -> None:
    for level in (1, 2, 3):
        assert is_refused(update(own, change(TRANSACTION_VERSION, level)))
    update(own, change(METADATA_VERSION, 22))
    assert finalized(own) == {METADATA_VERSION: 22, GROUP_VERSION: 1}
    assert codes(update(own, change(TRANSACTION_VERSION, 2))) == {TRANSACTION_VERSION: 0}
    update(own, change(METADATA_VERSION, 21, SAFE))
    assert finalized(own) == {METADATA_VERSION: 21}
