"""Sources of the broker's settings, their order, and what stops the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from config import BrokerSettings, ConfigError, load
from config.dynamic import with_dynamic
from config.keys import known_key, known_keys
from config.properties import keys_by_variable, made_by_an_orchestrator, variable_of


def write(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text)
    return path


def test_without_sources_the_defaults_hold() -> None:
    settings = load()
    assert settings == BrokerSettings()
    assert settings.node_id == settings.broker_id == 1
    assert settings.data_directory == "./data"
    assert str(settings.listeners[0]) == "PLAINTEXT://127.0.0.1:9092"
    assert settings.log_flush_policy == "ack"
    assert settings.validation_level == "auto"
    assert settings.replication_factor_clamp is False
    assert settings.max_decompressed_batch_bytes == 134_217_728
    assert settings.read_ahead_max_bytes == 8 * 1024 * 1024
    assert settings.read_ahead_max_requests == 64
    assert settings.cluster_id is None
    assert settings.record_format == 2


def test_each_source_holds_over_the_one_before(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions=2\nlog.dirs=/file\nlog.segment.bytes=2000\n")
    environ = {"TRIGLOT_NUM_PARTITIONS": "3", "TRIGLOT_LOG_DIRS": "/environment"}
    settings = load(properties_file=path, environ=environ, overrides={"num.partitions": "4"})
    assert settings.num_partitions == 4
    assert settings.log_dirs == "/environment"
    assert settings.log_segment_bytes == 2000
    assert settings.log_roll_hours == 168


def test_of_two_lines_with_one_key_the_last_holds_and_the_first_is_not_looked_at(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "num.partitions=wrong\nnum.partitions=3\n")
    assert load(properties_file=path).num_partitions == 3


def test_everything_wrong_is_reported_at_once_with_its_place(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "brokr.rack=a\nnum.partitions = two\nlog.roll.hours=0\nnode.id=3\nssl.client.auth=maybe\n",
    )
    with pytest.raises(ConfigError) as caught:
        load(
            properties_file=path,
            environ={"TRIGLOT_LOG_DIR": "", "TRIGLOT_NUM_PARTITION": "1"},
            overrides={"log.flush.policy": "never"},
        )
    assert str(caught.value).splitlines() == [
        "TRIGLOT_NUM_PARTITION: no key has this variable; did you mean TRIGLOT_NUM_PARTITIONS?",
        f"{path}:1: brokr.rack: there is no such key; did you mean broker.rack?",
        f"{path}:2: num.partitions = 'two': wanted a whole number (int)",
        f"{path}:3: log.roll.hours = '0': wanted at least 1",
        f"{path}:5: ssl.client.auth = 'maybe': wanted one of required, requested, none",
        "TRIGLOT_LOG_DIR: log.dir = '': wanted a text that is not empty",
        "--set: log.flush.policy = 'never': wanted one of ack, interval, os",
    ]


def test_an_error_names_key_value_reason_source_and_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides={"log.retention.mss": "5"})
    error = caught.value
    assert (error.source, error.key, error.value) == ("--set", "log.retention.mss", None)
    assert error.reason == "there is no such key"
    assert error.nearest == "log.retention.ms"


def test_a_key_like_no_other_has_no_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides={"qqqq": "5"})
    assert caught.value.nearest is None
    assert "did you mean" not in str(caught.value)


def test_a_key_that_kafka_removed_is_refused_with_what_takes_its_place() -> None:
    with pytest.raises(ConfigError, match=r"port: Kafka no longer has this key: use listeners="):
        load(overrides={"port": "9092"})


def test_a_password_is_not_repeated_in_an_error_or_shown() -> None:
    settings = load(overrides={"ssl.keystore.password": "hunter2"})
    assert "hunter2" not in repr(settings)
    with pytest.raises(ConfigError) as caught:
        load(overrides={"ssl.keystore.password": "hunter2", "num.partitions": "0"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.properties", "."])
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(properties_file=tmp_path / name)


def test_no_two_keys_have_the_same_variable() -> None:
    names = list(known_keys())
    assert len(keys_by_variable(names)) == len(names)
    assert variable_of("zookeeper.clientCnxnSocket") == "TRIGLOT_ZOOKEEPER_CLIENTCNXNSOCKET"


def test_every_key_can_be_given_by_its_variable() -> None:
    environ = {variable_of("log.roll.ms"): "5", variable_of("zookeeper.connect"): "h:2181"}
    settings = load(environ=environ)
    assert settings.log_roll_ms == 5
    assert settings.value(known_keys()["zookeeper.connect"]) == "h:2181"


def test_variables_of_others_are_not_looked_at() -> None:
    assert (
        load(environ={"PATH": "/bin", "KAFKA_LOG_DIRS": "/x", "triglot_log_dirs": "/y"}) == load()
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TRIGLOT_SERVICE_HOST", "10.0.0.1"),
        ("TRIGLOT_SERVICE_PORT", "9092"),
        ("TRIGLOT_SERVICE_PORT_CLIENTS", "9092"),
        ("TRIGLOT_PORT", "tcp://10.0.0.1:9092"),
        ("TRIGLOT_PORT_9092_TCP", "tcp://10.0.0.1:9092"),
        ("TRIGLOT_PORT_9092_TCP_PROTO", "tcp"),
        ("TRIGLOT_PORT_9092_TCP_PORT", "9092"),
        ("TRIGLOT_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("TRIGLOT_HEADLESS_SERVICE_HOST", "10.0.0.1"),
        ("TRIGLOT_HEADLESS_PORT_9092_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_kubernetes_makes_for_a_service_of_our_name_do_no_harm(
    variable: str, text: str
) -> None:
    assert load(environ={variable: text}) == load()


def test_no_key_looks_like_a_variable_of_kubernetes() -> None:
    assert [
        name for name in known_keys() if made_by_an_orchestrator(variable_of(name), "9092")
    ] == []
    with pytest.raises(ConfigError, match="TRIGLOT_PORT"):
        load(environ={"TRIGLOT_PORT": "9092"})


@pytest.mark.parametrize(
    ("given", "node_id"),
    [
        ({"node.id": "3"}, 3),
        ({"broker.id": "3"}, 3),
        ({"broker.id": "0"}, 0),
        ({"broker.id": "-1"}, 1),
        ({"broker.id": "-1", "node.id": "4"}, 4),
        ({"broker.id": "3", "node.id": "3"}, 3),
    ],
)
def test_node_id_and_broker_id_are_one_number(given: dict[str, str], node_id: int) -> None:
    settings = load(overrides=given)
    assert settings.node_id == settings.broker_id == node_id


def test_a_default_of_ours_grows_with_the_key_of_kafka_that_it_must_not_be_below() -> None:
    larger = load(overrides={"message.max.bytes": "200000000"})
    later = with_dynamic(load(), all_brokers={"message.max.bytes": "300000000"}, this_broker={})
    chosen = {"message.max.bytes": "200000000", "max.decompressed.batch.bytes": "250000000"}

    assert larger.max_decompressed_batch_bytes == 200_000_000
    assert later.max_decompressed_batch_bytes == 300_000_000
    assert load(overrides=chosen).max_decompressed_batch_bytes == 250_000_000
    assert load(overrides={"message.max.bytes": "5"}).max_decompressed_batch_bytes == 134_217_728


def test_two_different_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"broker\.id = '3': node\.id is 4; they must agree"):
        load(overrides={"broker.id": "3", "node.id": "4"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"process.roles": "controller"}, "process.roles"),
        ({"log.dirs": "/a,/b"}, "one data directory is served"),
        ({"authorizer.class.name": "com.example.Authorizer"}, "StandardAuthorizer"),
        ({"super.users": "alice"}, "Type:name"),
        ({"max.decompressed.batch.bytes": "1000"}, "is less than message.max.bytes"),
        ({"group.min.session.timeout.ms": "1800001"}, "is above group.max.session.timeout.ms"),
        ({"group.consumer.session.timeout.ms": "1000"}, "not between"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, "not between"),
        ({"group.coordinator.rebalance.protocols": "share"}, "no group protocol"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "is above log.cleaner.max.compaction.lag.ms",
        ),
        (
            {"compression.type": "zstd", "log.message.format.version": "0.10.2"},
            "cannot be compressed with zstd",
        ),
        (
            {"inter.broker.protocol.version": "2.8", "log.message.format.version": "3.0"},
            "is newer than inter.broker.protocol.version",
        ),
    ],
)
def test_keys_that_contradict_each_other_stop_the_start(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(overrides=given)


def test_super_users_are_separated_by_semicolons() -> None:
    # A name may have a comma: those of certificates do.
    found = load(overrides={"super.users": "User:CN=a,O=b; User:bob;"}).super_users
    assert found == ("User:CN=a,O=b", "User:bob")


def test_an_old_inter_broker_version_alone_leaves_the_record_format_alone() -> None:
    assert load(overrides={"inter.broker.protocol.version": "0.9.0"}).record_format == 2


def test_a_key_of_one_listener_is_known_when_the_key_behind_it_is() -> None:
    name = "listener.name.internal.ssl.keystore.location"
    mechanism = "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"
    settings = load(overrides={name: "/keys", mechanism: "secret"})
    key = known_key(name)
    assert key is not None
    assert settings.value(key) == "/keys"
    for unknown in (
        "listener.name.internal.no.such.key",
        "listener.name.internal",
        "listener.name.a.b.num.partitions",
    ):
        with pytest.raises(ConfigError, match="there is no such key"):
            load(overrides={unknown: "1"})
    with pytest.raises(ConfigError, match="wanted one of"):
        load(overrides={"listener.name.internal.ssl.client.auth": "maybe"})


@pytest.mark.parametrize(
    "name",
    [
        *("rsm.config.bucket", "rlmm.config.x", "client.quota.callback.static.produce"),
        "authorizer.zookeeper.url",
    ],
)
def test_keys_that_plug_ins_of_kafka_read_themselves_are_known(name: str) -> None:
    assert load(overrides={name: "b"}) == load()


def test_settings_are_frozen_and_comparable() -> None:
    settings = load(overrides={"num.partitions": "3"})
    assert settings == load(overrides={"num.partitions": " 3 "})
    assert hash(settings) == hash(load(overrides={"num.partitions": "3"}))
    assert settings != load()
    with pytest.raises(AttributeError, match="frozen"):
        settings.num_partitions = 4
    with pytest.raises(AttributeError, match="frozen"):
        del settings.num_partitions
    assert settings.num_partitions == 3
    assert repr(settings) == "BrokerSettings(num_partitions=3)"


KRAFT_FILE = """\
# The keys and values of the file that Kafka 3.9 ships for a combined KRaft node.
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

ZOOKEEPER_FILE = """\
# The keys and values of the file that Kafka 3.9 ships for a broker with ZooKeeper.
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def test_the_files_kafka_ships_start_unchanged(tmp_path: Path) -> None:
    kraft = load(properties_file=write(tmp_path, KRAFT_FILE))
    assert [str(listener) for listener in kraft.served_listeners] == [
        "PLAINTEXT://:9092",
        "CONTROLLER://:9093",
    ]
    assert kraft.data_directory == "/tmp/kraft-combined-logs"
    zookeeper = load(properties_file=write(tmp_path, ZOOKEEPER_FILE))
    assert zookeeper.node_id == 0


def test_a_start_without_mistakes_loads_no_more_than_it_needs() -> None:
    program = (
        "import sys, config\n"
        "config.TopicSettings.of(config.load(environ={'TRIGLOT_LOG_DIRS': '/x'}), {})\n"
        "print(*sorted(sys.modules))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(finished.stdout.split())
    assert "config.topic" in loaded
    heavy = {"asyncio", "dataclasses", "difflib", "inspect", "json", "pathlib", "textwrap"}
    assert loaded & heavy == set()
    assert {name for name in loaded if name.startswith("config.accepted")} == set()


@pytest.mark.parametrize("text", ["", "0", "1"])
def test_the_variable_of_the_portable_path_is_no_key(text: str) -> None:
    assert load(environ={"TRIGLOT_PORTABLE": text}) == BrokerSettings()


def test_a_portable_path_that_is_neither_wanted_nor_not_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="TRIGLOT_PORTABLE: 'yes' is neither 1 nor 0"):
        load(environ={"TRIGLOT_PORTABLE": "yes"})
