"""Keys of the broker: listeners, connections, requests."""

from __future__ import annotations

from config.declare import (
    NOT_EMPTY,
    Check,
    Settings,
    at_least,
    between,
    key,
    minus_one_or,
    one_of,
)
from config.formats import release, releases_by_client
from config.kinds import INT_MAX, boolean, int32, int64, names, password, string
from config.listeners import (
    PROTOCOLS,
    Listener,
    counts_by_address,
    listener_list,
    protocol_map,
)

METRICS = "metrics"
CONSOLE = "console"
"""The name of metrics.port among the listeners, for the keys of TLS."""
LOCAL = (Listener("PLAINTEXT", "127.0.0.1", 9092),)
SAME_NAMES = (
    ("SASL_SSL", "SASL_SSL"),
    ("PLAINTEXT", "PLAINTEXT"),
    ("SSL", "SSL"),
    ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
)


class NetworkSettings(Settings):
    """The settings of the network: listeners, connections and the limits of requests."""

    listeners: tuple[Listener, ...] = key(
        "listeners",
        listener_list,
        LOCAL,
        "Where the broker listens: NAME://host:port, separated by commas. An empty host or "
        "0.0.0.0 is every interface; port 0 takes a free one.",
        since="0.9.0",
        default_note="nothing is offered to the network unless it is asked for",
        dynamic=True,
    )
    advertised_listeners: tuple[Listener, ...] | None = key(
        "advertised.listeners",
        listener_list,
        None,
        "The addresses clients are told to connect to. Unset, each client is told the address "
        "it connected to.",
        since="0.9.0",
        dynamic=True,
    )
    listener_security_protocol_map: tuple[tuple[str, str], ...] = key(
        "listener.security.protocol.map",
        protocol_map,
        SAME_NAMES,
        "Which protocol each listener name speaks: NAME:PROTOCOL, separated by commas. PLAINTEXT, "
        "SSL, SASL_PLAINTEXT or SASL_SSL.",
        since="0.10.2",
        dynamic=True,
    )
    controller_listener_names: tuple[str, ...] = key(
        "controller.listener.names",
        names,
        (),
        "Listeners on which the metadata log is served to those who follow it, and nothing to "
        "clients. Unless listener.security.protocol.map is set, they speak PLAINTEXT.",
        since="2.8",
    )
    as_version: str | None = key(
        "as.version",
        release,
        None,
        "A release of Kafka, from 0.8.2 to 4.4: clients are offered and refused what its brokers "
        "offer and refuse. It holds for connections made from then on. Given for one listener, as "
        "listener.name.NAME.as.version, it holds there in place of this. Unset, every version of "
        "every API is served.",
        since="triglot",
        dynamic=True,
    )
    as_version_client_ids: tuple[tuple[str, str], ...] = key(
        "as.version.client.ids",
        releases_by_client,
        (),
        "Other releases for some client ids, on all listeners of clients: id:release, separated by "
        "commas.",
        since="triglot",
        dynamic=True,
    )
    telemetry_max_bytes: int = key(
        "telemetry.max.bytes",
        int32,
        1_048_576,
        "What one push of a client's metrics (KIP-714) may have, compressed.",
        check=at_least(1),
        since="3.7",
    )
    metrics_port: int | None = key(
        "metrics.port",
        int32,
        None,
        "The port on which GET /metrics answers counters in the text format of Prometheus; 0 "
        "takes a free one. Unset, there are none. Each of several processes (broker.processes) has "
        "one, counted up from it.",
        check=between(0, 65_535),
        since="triglot",
    )
    metrics_host: str = key(
        "metrics.host",
        string,
        "127.0.0.1",
        "The address of metrics.port; 0.0.0.0 is every interface.",
        since="triglot",
    )
    metrics_security_protocol: str = key(
        "metrics.security.protocol",
        string,
        "PLAINTEXT",
        "PLAINTEXT or SSL, which metrics.port speaks; the keys ssl.* are those of a listener, and "
        "ssl.client.auth=required asks for a certificate there too.",
        check=one_of("PLAINTEXT", "SSL"),
        since="triglot",
    )
    metrics_basic_credentials: str | None = key(
        "metrics.basic.credentials",
        password,
        None,
        "user:password, which a request to metrics.port has to have (HTTP Basic).",
        check=Check(lambda value: ":" in value, "user:password"),
        since="triglot",
    )
    metrics_bearer_token: str | None = key(
        "metrics.bearer.token",
        password,
        None,
        "The token that a request to metrics.port has to have (HTTP Bearer). With "
        "metrics.basic.credentials set as well, either will do.",
        check=NOT_EMPTY,
        since="triglot",
    )
    console_port: int | None = key(
        "console.port",
        int32,
        None,
        "The port of the console, pages for a browser about topics, records, groups and clients; 0 "
        "takes a free one. Unset, there is none. Several processes (broker.processes) have one "
        "console.",
        check=between(0, 65_535),
        since="triglot",
    )
    console_host: str = key(
        "console.host",
        string,
        "127.0.0.1",
        "The address of console.port; 0.0.0.0 is every interface.",
        since="triglot",
    )
    console_security_protocol: str | None = key(
        "console.security.protocol",
        string,
        None,
        "PLAINTEXT or SSL, which console.port speaks; the keys ssl.* are those of a listener, but "
        "for ssl.client.auth. Unset it is PLAINTEXT, and where people log in console.host has to "
        "be a loopback address then.",
        check=one_of("PLAINTEXT", "SSL"),
        since="triglot",
    )
    console_writable: bool = key(
        "console.writable",
        boolean,
        False,
        "Whether the console changes things (records, offsets of groups) for those who may. "
        "Otherwise it only reads.",
        since="triglot",
    )
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes",
        int32,
        102_400,
        "The socket's send buffer (SO_SNDBUF); -1 leaves it to the system.",
        check=at_least(-1),
        since="0.8.0",
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes",
        int32,
        102_400,
        "The socket's receive buffer (SO_RCVBUF); -1 leaves it to the system.",
        check=at_least(-1),
        since="0.8.0",
    )
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes",
        int32,
        104_857_600,
        "The largest request read; a larger one closes its connection.",
        check=at_least(1),
        since="0.8.0",
    )
    socket_listen_backlog_size: int = key(
        "socket.listen.backlog.size",
        int32,
        50,
        "Connections the system may hold before they are accepted.",
        check=at_least(1),
        since="3.2",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name",
        string,
        None,
        "The listener that max.connections and max.connection.creation.rate of all listeners keep "
        "nobody from. Unset, it is that of security.inter.broker.protocol.",
        since="0.10.2",
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol",
        string,
        "PLAINTEXT",
        "The name of that listener where inter.broker.listener.name is unset.",
        check=one_of(*PROTOCOLS),
        since="0.9.0",
    )
    max_connections: int = key(
        "max.connections",
        int32,
        INT_MAX,
        "Connections open at a time; further ones wait to be accepted. Given for one listener, as "
        "listener.name.NAME.max.connections, it limits that one besides.",
        check=at_least(0),
        since="2.3",
        dynamic=True,
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate",
        int32,
        INT_MAX,
        "New connections per second, over the windows of quotas; further ones wait to be accepted. "
        "Given for one listener, as listener.name.NAME.max.connection.creation.rate, it limits "
        "that one besides.",
        check=at_least(0),
        since="2.7",
        dynamic=True,
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip",
        int32,
        INT_MAX,
        "Connections open at a time from one address.",
        check=at_least(0),
        since="0.8.2",
        dynamic=True,
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = key(
        "max.connections.per.ip.overrides",
        counts_by_address,
        (),
        "Other limits for some addresses: address:count, separated by commas.",
        since="0.8.2",
        dynamic=True,
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        int64,
        600_000,
        "A connection on which nothing has happened for so long is closed; -1 never.",
        check=at_least(-1),
        since="0.8.2",
    )
    read_ahead_max_bytes: int = key(
        "read.ahead.max.bytes",
        int64,
        8_388_608,
        "Bytes of requests one connection may have waiting for their answers before its socket "
        "is no longer read.",
        check=at_least(1),
        since="triglot",
        dynamic=True,
    )
    read_ahead_max_requests: int = key(
        "read.ahead.max.requests",
        int32,
        64,
        "Requests one connection may have waiting for their answers before its socket is no "
        "longer read.",
        check=at_least(1),
        since="triglot",
        dynamic=True,
    )
    connections_backlog_max_bytes: int = key(
        "connections.backlog.max.bytes",
        int64,
        67_108_864,
        "Memory of unsent answers, and of requests behind them, that all connections together may "
        "hold for clients that do not read. From half of it on none is read ahead; beyond it "
        "those that hold most are closed.",
        check=at_least(1),
        since="triglot",
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes",
        int64,
        -1,
        "Bytes of requests all connections together may have waiting; -1 sets no limit.",
        check=minus_one_or(at_least(1)),
        since="1.0",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        int32,
        57_671_680,
        "The most one Fetch is answered with, whatever it asks for; its first batch is sent "
        "whole all the same.",
        check=at_least(1024),
        since="2.5",
    )
    max_incremental_fetch_session_cache_slots: int = key(
        "max.incremental.fetch.session.cache.slots",
        int32,
        1000,
        "Fetch sessions remembered at a time (KIP-227).",
        check=at_least(0),
        since="1.1",
    )
    max_request_partition_size_limit: int = key(
        "max.request.partition.size.limit",
        int32,
        2000,
        "Partitions one DescribeTopicPartitions request is answered with at most.",
        check=at_least(1),
        since="3.8",
    )
