"""CreateTopics, versions 0 to 7."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.schema import ZERO_UUID
from tests.support.administrator import BROKER, Administrator
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

VERSIONS = range(8)
DYNAMIC_TOPIC, ALL_BROKERS, DEFAULT = 1, 3, 5

Asked = CreateTopicsRequest.Topic
Assignment = Asked.Assignment


def asked(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    assignments: tuple[tuple[int, list[int]], ...] = (),
    configs: dict[str, str | None] | None = None,
) -> Asked:
    return Asked(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[Assignment(partition_index=i, broker_ids=ids) for i, ids in assignments],
        configs=[Asked.Config(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(
    caller: Caller, *topics: Asked, version: int = 7, validate_only: bool = False
) -> list[CreateTopicsResponse.Topic]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    found: list[CreateTopicsResponse.Topic] = caller.call(request, version).topics
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_can_be_used_when_the_answer_comes(
    caller: Caller, topic: str, version: int
) -> None:
    (made,) = create(caller, asked(topic, 2, configs={"retention.ms": "5000"}), version=version)

    assert (made.name, made.error_code, made.error_message) == (topic, 0, None)
    described = caller.describe(topic)
    assert len(described.partitions) == 2
    assert described.topic_id != ZERO_UUID
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        configs = {config.name: config for config in made.configs or ()}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
            "5000",
            DYNAMIC_TOPIC,
        )
        assert configs["cleanup.policy"].config_source == DEFAULT
    assert made.topic_id == (described.topic_id if version >= 7 else ZERO_UUID)
    assert caller.produce(topic, batch(b"a"), partition=1).base_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_1_is_the_default(caller: Caller, topic: str, version: int) -> None:
    (made,) = create(caller, asked(topic, -1, -1), version=version)

    assert made.error_code == 0
    assert len(caller.describe(topic).partitions) == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"retention.mss": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": ((0, [1]),)}, ErrorCode.INVALID_REQUEST),
        (
            {"partitions": -1, "factor": -1, "assignments": ((0, [9]),)},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"partitions": -1, "factor": -1, "assignments": ((1, [1]),)},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_what_can_not_be_created_is_refused_with_its_code_and_not_created(
    caller: Caller, topic: str, version: int, changes: dict[str, object], code: ErrorCode
) -> None:
    for validate_only in (True, False):
        (refused,) = create(
            caller,
            asked(topic, **changes),  # type: ignore[arg-type]
            version=version,
            validate_only=validate_only,
        )
        assert refused.error_code == code
        assert bool(refused.error_message) == (version >= 1)
        assert refused.topic_id == ZERO_UUID
    assert caller.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "n" * 250])
def test_a_name_that_no_topic_can_have_is_refused(caller: Caller, name: str) -> None:
    (refused,) = create(caller, asked(name))

    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_of_249_characters_is_taken(caller: Caller) -> None:
    (made,) = create(caller, asked("n" * 249))

    assert made.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_exists_is_refused_and_its_neighbour_is_created(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    exists, made = create(caller, asked(topic), asked(f"{topic}-2"), version=version)

    assert exists.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert made.error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_comes_twice_is_refused_once_and_the_others_are_created(
    caller: Caller, topic: str, version: int
) -> None:
    answer = create(caller, asked(topic), asked(f"{topic}-other"), asked(topic, 3), version=version)

    assert {entry.name: entry.error_code for entry in answer} == {
        topic: ErrorCode.INVALID_REQUEST,
        f"{topic}-other": 0,
    }
    assert len(answer) == 2
    assert caller.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_differ_only_in_dots_and_underscores_collide(caller: Caller) -> None:
    (first,) = create(caller, asked("one.two_three"))
    second, third = create(caller, asked("one_two.three"), asked("one-two-three"))

    assert (first.error_code, third.error_code) == (0, 0)
    assert second.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(1, 8))
def test_validating_checks_everything_and_creates_nothing(
    caller: Caller, topic: str, version: int
) -> None:
    (checked,) = create(caller, asked(topic, 3), version=version, validate_only=True)

    assert (checked.error_code, checked.topic_id) == (0, ZERO_UUID)
    assert checked.num_partitions == (3 if version >= 5 else -1)
    assert caller.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_may_be_assigned_to_this_broker(
    caller: Caller, topic: str, version: int
) -> None:
    assigned = asked(topic, -1, -1, assignments=((1, [1]), (0, [1]), (2, [1])))

    (made,) = create(caller, assigned, version=version)

    assert made.error_code == 0
    assert len(caller.describe(topic).partitions) == 3


def test_a_replication_factor_above_1_can_be_let_through(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = {"replication.factor.clamp": "true", "num.partitions": "4"}
    with (
        BrokerProcess(tmp_path_factory.mktemp("clamp") / "data", settings=settings) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        clamped, by_default, wrong = create(
            caller, asked("a", 1, 3), asked("b", -1, -1), asked("c", 1, 0)
        )

        assert (clamped.error_code, clamped.replication_factor) == (0, 1)
        assert (by_default.error_code, by_default.num_partitions) == (0, 4)
        assert wrong.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topics_and_their_ids_survive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        topic_id = caller.create_topic("kept", partitions=3, retention_ms="77")
        caller.create_topic("gone")
        caller.delete_topic("gone")
    own_broker.kill()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        kept = caller.describe("kept")
        assert (kept.topic_id, len(kept.partitions)) == (topic_id, 3)
        assert caller.describe("gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    own_broker.stop()


def test_the_topic_of_the_controller_can_not_be_created(caller: Caller) -> None:
    for validate_only in (True, False):
        (refused,) = create(caller, asked("__cluster_metadata"), validate_only=validate_only)
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    described = caller.call(
        MetadataRequest(
            topics=[MetadataRequest.Topic(name="__cluster_metadata")],
            allow_auto_topic_creation=True,
        ),
        12,
    )
    assert described.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("validate_only", [True, False])
def test_names_that_collide_within_a_request_do_so_too(
    caller: Caller, topic: str, validate_only: bool
) -> None:
    made = create(
        caller,
        *(asked(f"{topic}{end}") for end in (".a", "_a", ".b", "-a")),
        validate_only=validate_only,
    )

    assert [entry.error_code for entry in made] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0]


def test_topics_of_one_request_are_created_or_refused_each_by_itself(
    caller: Caller, topic: str
) -> None:
    made = create(
        caller,
        asked(f"{topic}-1", 2, configs={"retention.ms": "5000"}),
        asked(f"{topic}-bad", configs={"retention.ms": "soon"}),
        asked(f"{topic}-2", 3),
        asked(f"{topic}-twice"),
        asked(f"{topic}-twice"),
    )

    assert [(entry.name, entry.error_code) for entry in made] == [
        (f"{topic}-1", 0),
        (f"{topic}-bad", ErrorCode.INVALID_CONFIG),
        (f"{topic}-2", 0),
        (f"{topic}-twice", ErrorCode.INVALID_REQUEST),
    ]
    for entry, partitions, source in ((made[0], 2, DYNAMIC_TOPIC), (made[2], 3, DEFAULT)):
        found = caller.describe(entry.name)
        assert (found.topic_id, len(found.partitions)) == (entry.topic_id, partitions)
        configs = {config.name: config.config_source for config in entry.configs or ()}
        assert configs["retention.ms"] == source
        assert caller.produce(entry.name, batch(b"a"), partition=1).base_offset == 0


def test_all_topics_of_one_request_outlive_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        made = create(caller, *(asked(f"t{number}", 1 + number % 3) for number in range(300)))
        assert {entry.error_code for entry in made} == {0}
    own_broker.kill()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        for number, entry in enumerate(made):
            found = caller.describe(entry.name)
            assert (found.topic_id, len(found.partitions)) == (entry.topic_id, 1 + number % 3)


def test_topics_are_answered_with_the_settings_that_hold_when_they_are_made(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with Administrator(own_broker.host, own_broker.port) as caller:

        def told(name: str) -> tuple[str | None, int]:
            (made,) = create(caller, asked(name))
            configs = {config.name: config for config in made.configs or ()}
            return configs["retention.ms"].value, configs["retention.ms"].config_source

        assert told("first") == told("second") == ("604800000", DEFAULT)
        caller.alter(BROKER, "", log_retention_ms="86400000")
        assert told("third") == ("86400000", ALL_BROKERS)
