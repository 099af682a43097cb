"""CreateTopics: new topics; each can be used when the answer comes.

All topics of a request are stored with one sync, then their folders are made, while others are
served; a second request for the same name waits until the first one is answered. A topic that is
refused, or whose folders are, takes no other with it.

One node: a replication factor above 1 is refused, unless `replication.factor.clamp` lets it pass as
1; a manual assignment may name this node only, or processes of the directory.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed
from broker.handlers.nodes import process_of, there_is
from broker.partitions.topic_names import MetricNames, check_name
from broker.partitions.topics import MAX_PARTITIONS, NewTopic
from config import ConfigError, TopicSettings
from config.describe import topic_rows
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_TOPIC
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from broker.metadata.client_quotas import Mutations
    from broker.partitions.topic import Topic
    from config import BrokerSettings
    from protocol.connection import Request
    from protocol.releases import Release
    from storage.steps import Steps

DEFAULT = -1
STRICT_SINCE = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
KINDS_MAX = 64
"""Kinds of topics, by their own settings, that are remembered."""

Asked = CreateTopicsRequest.Topic
TopicResult = CreateTopicsResponse.Topic


def create_topics(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[CreateTopicsResponse]:
    message: CreateTopicsRequest = request.message
    client, strict = ctx.client(request), request.version >= STRICT_SINCE
    mutations = ctx.quotas.mutations(client, strict=strict)
    plans = _Plans(ctx, mutations, ctx.routes.of(request.client_id).release)
    named = Counter(asked.name for asked in message.topics)
    entries: dict[str, TopicResult] = {}
    for asked in message.topics:
        if asked.name in entries:
            continue
        try:
            if named[asked.name] > 1:
                raise KafkaError(
                    f"topic '{asked.name}' is named more than once", code=ErrorCode.INVALID_REQUEST
                )
            entries[asked.name] = plans.add(asked)
        except KafkaError as error:
            entries[asked.name] = _refused(asked.name, error.code, str(error))
        yield None
    if plans.wanted and not message.validate_only:
        yield from _create(plans.wanted, entries, ctx)
    return CreateTopicsResponse(
        topics=list(entries.values()), throttle_time_ms=mutations.throttle_ms
    )


def _create(wanted: list[NewTopic], entries: dict[str, TopicResult], ctx: Context) -> Steps[None]:
    """Create what has been checked, and put into the entries what came of it."""
    made: Sequence[Topic | OSError]
    try:
        made = yield from ctx.topics.create_all(wanted)
    except OSError as error:
        made = [error] * len(wanted)
    for one, topic in zip(wanted, made, strict=True):
        if isinstance(topic, OSError):
            ctx.failed("creating a topic", topic, topic=one.name)
            entries[one.name] = _refused(
                one.name,
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the data directory can't be written: {topic.strerror}",
            )
        else:
            ctx.created(topic)
            entries[one.name].topic_id = topic.topic_id
        yield None  # each is told of in the log


def _refused(name: str, code: ErrorCode, text: str) -> TopicResult:
    return TopicResult(name=name, error_code=code, error_message=text, configs=None)


class _Plans:
    """The topics of a request that can be made, each with the entry that tells of it."""

    def __init__(self, ctx: Context, mutations: Mutations, release: Release | None) -> None:
        """`release` is the one as which the client is answered."""
        self._ctx = ctx
        self._mutations = mutations
        self._release = release
        self._metric_names = MetricNames()
        self.wanted: list[NewTopic] = []

    def add(self, asked: Asked) -> TopicResult:
        """Its entry, without an id yet. Raises KafkaError."""
        settings = self._ctx.settings.current
        if not self._ctx.may_create(asked.name):
            raise KafkaError("Authorization failed.", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        self._check_name(asked.name)
        if self._release is not None and not self._release.has_default_counts:
            _require_counts(asked)
        partition_count, assigned = _partitions(asked, self._ctx)
        overrides = {one.name: one.value for one in asked.configs if one.value is not None}
        missing = [config.name for config in asked.configs if config.value is None]
        if missing:
            raise KafkaError(f"{missing[0]} has no value", code=ErrorCode.INVALID_CONFIG)
        try:
            TopicSettings.of(settings, overrides)
        except ConfigError as error:
            raise KafkaError(str(error), code=ErrorCode.INVALID_CONFIG) from None
        self._mutations.record(partition_count)
        self.wanted.append(NewTopic(asked.name, partition_count, overrides, assigned))
        self._metric_names.add(asked.name)
        if not self._ctx.allows(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name, silent=True
        ):
            return TopicResult(
                name=asked.name,
                topic_id=ZERO_UUID,
                error_code=ErrorCode.NONE,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        return TopicResult(
            name=asked.name,
            topic_id=ZERO_UUID,
            error_code=ErrorCode.NONE,
            num_partitions=partition_count,
            replication_factor=1,
            configs=_ALIKE.configs(settings, overrides),
        )

    def _check_name(self, name: str) -> None:
        """Raise KafkaError if there can be no new topic of this name."""
        topics = self._ctx.topics
        check_name(name, topics.metric_names, self._metric_names)
        if name == METADATA_TOPIC:
            raise KafkaError(f"'{name}' is kept by the controller", code=ErrorCode.INVALID_REQUEST)
        if name in topics.by_name:
            raise KafkaError(f"topic '{name}' exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)


class _Alike:
    """The settings that topics are answered with: found once for all that are alike, which most
    are, as long as the broker's settings stay the same."""

    def __init__(self) -> None:
        self._settings: BrokerSettings | None = None
        self._found: dict[tuple[tuple[str, str], ...], list[TopicResult.Config]] = {}

    def configs(
        self, settings: BrokerSettings, overrides: dict[str, str]
    ) -> list[TopicResult.Config]:
        if settings is not self._settings or len(self._found) >= KINDS_MAX:
            self._settings, self._found = settings, {}
        kind = tuple(overrides.items())
        if kind not in self._found:
            self._found[kind] = [
                TopicResult.Config(
                    name=row.name,
                    value=row.value,
                    read_only=row.read_only,
                    config_source=row.source,
                    is_sensitive=row.sensitive,
                )
                for row in topic_rows(settings, overrides)
            ]
        return self._found[kind]


_ALIKE = _Alike()


def _require_counts(asked: Asked) -> None:
    """Raise KafkaError for a topic that leaves its counts to the broker."""
    if asked.assignments:
        return
    for count, what, code in (
        (asked.num_partitions, "Number of partitions", ErrorCode.INVALID_PARTITIONS),
        (asked.replication_factor, "Replication factor", ErrorCode.INVALID_REPLICATION_FACTOR),
    ):
        if count == DEFAULT:
            raise KafkaError(f"{what} must be larger than 0.", code=code)


def _partitions(asked: Asked, ctx: Context) -> tuple[int, list[int]]:
    """How many there are, and the processes that they are assigned to, if they are. Raises
    KafkaError."""
    settings = ctx.settings.current
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise KafkaError(
                "partitions are either counted or assigned, not both",
                code=ErrorCode.INVALID_REQUEST,
            )
        assigned = _assigned(asked, ctx)
        return len(assigned), assigned
    count = settings.num_partitions if asked.num_partitions == DEFAULT else asked.num_partitions
    if not 1 <= count <= MAX_PARTITIONS:
        raise KafkaError(
            f"{count} partitions, wanted 1 to {MAX_PARTITIONS}", code=ErrorCode.INVALID_PARTITIONS
        )
    factor = asked.replication_factor
    if factor not in (DEFAULT, 1) and not (factor > 1 and settings.replication_factor_clamp):
        raise KafkaError(
            f"replication factor {factor}, but this is a single node (1; "
            "replication.factor.clamp=true accepts more and keeps one copy)",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    return count, []


def _assigned(asked: Asked, ctx: Context) -> list[int]:
    """The process of each partition. Raises KafkaError."""
    indexes = sorted(item.partition_index for item in asked.assignments)
    if indexes != list(range(len(indexes))) or len(indexes) > MAX_PARTITIONS:
        raise KafkaError(
            "assigned partitions must be numbered from 0 without gaps",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    assigned = dict.fromkeys(indexes, 0)
    for item in asked.assignments:
        number = process_of(item.broker_ids, ctx)
        if number is None:
            raise KafkaError(
                f"partition {item.partition_index} is assigned to brokers {item.broker_ids}; "
                f"{there_is(ctx)}",
                code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        assigned[item.partition_index] = number
    return list(assigned.values())
