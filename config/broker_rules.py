"""The rules that the broker's keys must fulfil together, each with the reason of its refusal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from config.broker import OF_ONE_LISTENER, as_version_of
from config.broker_network import CONSOLE, METRICS
from config.formats import record_format, release_of
from config.listeners import LISTENER_PREFIX, UNROUTABLE_HOSTS, Listener

WITHOUT_SECURITY = "0.8.2"
PORTS = 65_536

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from config.broker import BrokerSettings


def broken_rules(settings: BrokerSettings, given: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(key, reason) of each rule that does not hold. `given` are the keys somebody set."""
    yield from _node(settings, given)
    yield from _listeners(settings)
    yield from _advertised(settings)
    yield from _as_version(settings)
    yield from _logs(settings, given)
    yield from _groups(settings)
    yield from _processes(settings)


def _processes(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    """What one process can that several can't yet."""
    count = settings.broker_processes
    if count == 1:
        return
    for name, given in (
        ("controller.listener.names", bool(settings.controller_listeners)),
        ("as.version", settings.rehearses),
    ):
        if given:
            yield name, "it is for one process (broker.processes)"
    if not settings.transaction_partition_verification_enable:
        yield (
            "transaction.partition.verification.enable",
            "it is true for several processes (broker.processes): the coordinator may be another",
        )
    of_metrics = Listener(METRICS, settings.metrics_host, settings.metrics_port or 0)
    of_console = Listener(CONSOLE, settings.console_host, settings.console_port or 0)
    listeners = (*settings.client_listeners, of_metrics)
    yield from _overlaps("listeners", listeners, count, one_for_all=(of_console,))
    yield from _overlaps("advertised.listeners", settings.advertised_listeners or (), count)


def _overlaps(
    name: str, listeners: Iterable[Listener], count: int, *, one_for_all: Iterable[Listener] = ()
) -> Iterator[tuple[str, str]]:
    """Each listener takes as many ports as there are processes, but for those with one port for all
    of them. How many `auto` is, is known later."""
    taken = [(one, count) for one in listeners] + [(one, 1) for one in one_for_all]
    ordered = sorted((one for one in taken if one[0].port), key=lambda one: one[0].port)
    for one, ports in ordered:
        if one.port + ports > PORTS:
            yield name, f"with {count} processes {one.name} would take ports above {PORTS - 1}"
    for (one, ports), (other, _) in pairwise(ordered):
        if one.port + ports > other.port:
            yield (
                name,
                f"with {count} processes {one.name} takes the ports {one.port} to "
                f"{one.port + ports - 1}, and {other.name} begins at {other.port}",
            )


def _node(settings: BrokerSettings, given: frozenset[str]) -> Iterator[tuple[str, str]]:
    roles = settings.process_roles
    if roles and "broker" not in roles:
        yield "process.roles", "a node that is only a controller is not what this program is"
    if "," in (settings.log_dirs or ""):
        yield (
            "log.dirs",
            "one data directory is served; logs in the others would be missing without a word",
        )


def _listeners(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    served = settings.served_listeners
    if not settings.client_listeners:
        yield "listeners", "all of them are kept for the controller; none is left for clients"
    for listener in served:
        protocol = settings.security_protocol(listener.name)
        if protocol is None:
            yield (
                "listeners",
                f"listener.security.protocol.map does not say which protocol {listener.name} "
                "speaks",
            )
        elif protocol != "PLAINTEXT":
            from config import security_rules  # most starts do without

            yield from security_rules.broken_rules(settings, listener.name)
    if settings.metrics_port is not None and settings.metrics_security_protocol == "SSL":
        from config import security_rules

        yield from security_rules.broken_rules_of_tls(settings, METRICS)
    if settings.console_port is not None and settings.console_security_protocol == "SSL":
        from config import security_rules

        yield from security_rules.broken_rules_of_tls(settings, CONSOLE)
    for number, listener in enumerate(served):
        for other in served[:number]:
            if listener.port and listener.port == other.port and _collide(listener, other):
                yield "listeners", f"port {listener.port} is used twice"


def _as_version(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    names = [listener.name for listener in settings.client_listeners]
    known = {as_version_of(name) for name in names}
    for name, _ in settings.security_given:
        if name.endswith(OF_ONE_LISTENER) and name not in known:
            wanted = name.removeprefix(LISTENER_PREFIX).removesuffix(OF_ONE_LISTENER)
            yield (
                name,
                f"no listener for clients is named {wanted}; there is "
                + ", ".join(one.lower() for one in names),
            )
    for listener in names:
        protocol = settings.security_protocol(listener)
        if settings.as_version_on(listener) == WITHOUT_SECURITY and protocol != "PLAINTEXT":
            yield (
                as_version_of(listener) if as_version_of(listener) in known else "as.version",
                f"Kafka {WITHOUT_SECURITY} has neither TLS nor SASL, and {listener} speaks "
                f"{protocol}",
            )


def _collide(listener: Listener, other: Listener) -> bool:
    """Whether two listeners cannot share a port. Two addresses may, as 127.0.0.1 and ::1 do."""
    hosts = (listener.host, other.host)
    return listener.host == other.host or any(host in UNROUTABLE_HOSTS for host in hosts)


def _advertised(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    hidden = {name.upper() for name in settings.controller_listener_names}
    known = {listener.name for listener in settings.listeners} | hidden
    for listener in settings.advertised_listeners or ():
        if listener.name not in known:
            yield "advertised.listeners", f"there is no listener named {listener.name}"
        elif listener.host in UNROUTABLE_HOSTS and listener.name not in hidden:
            yield "advertised.listeners", f"no client can dial {listener}; name a host"


def _logs(settings: BrokerSettings, given: frozenset[str]) -> Iterator[tuple[str, str]]:
    if settings.max_decompressed_batch_bytes < settings.message_max_bytes:
        yield (
            "max.decompressed.batch.bytes",
            f"is less than message.max.bytes ({settings.message_max_bytes})",
        )
    version = settings.log_message_format_version
    peers = settings.inter_broker_protocol_version
    # Only where both were chosen: a file that sets one of them starts, as it would with Kafka.
    if {"log.message.format.version", "inter.broker.protocol.version"} <= given and (
        release_of(version) > release_of(peers)
    ):
        yield (
            "log.message.format.version",
            f"is newer than inter.broker.protocol.version ({peers})",
        )
    if settings.compression_type == "zstd" and record_format(version) < 2:
        yield (
            "compression.type",
            f"records of log.message.format.version {version} cannot be compressed with zstd",
        )
    if settings.log_cleaner_min_compaction_lag_ms > settings.log_cleaner_max_compaction_lag_ms:
        yield (
            "log.cleaner.min.compaction.lag.ms",
            "is above log.cleaner.max.compaction.lag.ms "
            f"({settings.log_cleaner_max_compaction_lag_ms})",
        )


def _groups(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    least, most = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if least > most:
        yield "group.min.session.timeout.ms", f"is above group.max.session.timeout.ms ({most})"
    ranges = (
        (
            "session.timeout.ms",
            settings.group_consumer_min_session_timeout_ms,
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_max_session_timeout_ms,
        ),
        (
            "heartbeat.interval.ms",
            settings.group_consumer_min_heartbeat_interval_ms,
            settings.group_consumer_heartbeat_interval_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
        ),
    )
    for name, least, value, most in ranges:
        if not least <= value <= most:
            yield (
                f"group.consumer.{name}",
                f"is {value}, not between group.consumer.min.{name} ({least}) and "
                f"group.consumer.max.{name} ({most})",
            )
    if not any(
        name in ("classic", "consumer") for name in settings.group_coordinator_rebalance_protocols
    ):
        yield "group.coordinator.rebalance.protocols", "offers no group protocol served here"
