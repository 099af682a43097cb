"""The groups of all clients at the same time, on one server that is killed and stopped."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tests.clients.groups.group import SESSION_MS
from tests.clients.groups.group_clients import GROUP_CLIENTS, OFFSET_CLIENTS
from tests.clients.groups.host import Host
from tests.clients.groups.life import Life
from tests.clients.groups.mixed import Mixed
from tests.clients.groups.source import Source
from tests.support.broker_process import BrokerProcess
from tests.support.fetched import NotAvailable
from tests.support.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.clients.groups.group_clients import GroupClient
    from tests.support.server_process import ServerProcess

TOPIC = "groups"

#: Members of most groups, and of one of each library with most users.
FEW, MANY = 4, 20
WITH_MANY = ("kafka-python", "confluent-kafka", "java-4-consumer")

#: For the protocol in which the broker sets the times of its members.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.min.heartbeat.interval.ms": "400",
}


def group_server(data: Path) -> ServerProcess:
    """A server for groups with short sessions, of either protocol."""
    if os.environ.get("TEST_SERVER") == "kafka":
        both = {"group.coordinator.rebalance.protocols": "classic,consumer"}
        return KafkaProcess(data, settings={**SETTINGS, **both})
    return BrokerProcess(data, settings=SETTINGS)


class Play:
    """Lives of groups and, after them, a group in which every client commits an offset."""

    def __init__(
        self,
        server: ServerProcess,
        folder: Path,
        seed: int,
        size: Callable[[str], int] = lambda key: MANY if key in WITH_MANY else FEW,
        clients: Sequence[GroupClient] = GROUP_CLIENTS,
    ) -> None:
        self.server = server
        self.seed = seed
        self.source = Source(server.bootstrap, TOPIC, seed)
        self.lives = {
            client.key: Life(client, size(client.key), server.bootstrap, self.source, folder)
            for client in clients
            if not (client.needs_4 and isinstance(server, KafkaProcess))
        }
        self.mixed = Mixed(server.bootstrap, self.source, folder)
        #: Why a client is not there, by its key.
        self.missing: dict[str, str] = {}
        self._folder = folder
        self._offset_hosts: dict[str, Host] = {}

    def run(self) -> None:
        self.act(
            Life.members_come_and_go,
            Life.a_member_is_paused_until_it_is_expelled,
            Life.a_static_member_is_restarted,
        )
        self.server.kill()
        self.server.start()
        self.act(Life.the_server_is_back)
        self.server.stop()
        self.server.start()
        self.act(Life.the_server_is_back)
        self.mixed.play(lambda: self.mixed.each_client_leads(self._hosts_with_range()))
        self.act(Life.all_leave)
        self.source.close()

    def act(self, *parts: Callable[[Life], None]) -> None:
        """All groups do these at the same time. What fails is noted in each."""

        def one(life: Life) -> None:
            try:
                for part in parts:
                    life.play(partial(part, life))
            except NotAvailable as reason:
                self.missing[life.client.key] = str(reason)

        lives = [life for key, life in self.lives.items() if key not in self.missing]
        with ThreadPoolExecutor(len(lives)) as pool:
            list(pool.map(one, lives))

    def host(self, client: GroupClient) -> Host:
        """A program of this client. Raises `fetched.NotAvailable`."""
        if client.joins:
            return self.lives[client.key].main
        if client.key not in self._offset_hosts:
            host = Host(client, self._folder)
            self._offset_hosts[client.key] = host
        return self._offset_hosts[client.key]

    def offset_clients(self) -> list[GroupClient]:
        """Those that can commit offsets to this server, and have not failed before."""
        # Apache Kafka keeps offsets of version 0 in ZooKeeper, which it has no more.
        old = () if isinstance(self.server, KafkaProcess) else OFFSET_CLIENTS
        return [
            client
            for client in (*(life.client for life in self.lives.values()), *old)
            if not client.joins or not self.lives[client.key].error
        ]

    def _hosts_with_range(self) -> list[Host]:
        return [
            life.main
            for key, life in self.lives.items()
            if life.client.range_words is not None and key not in self.missing and not life.error
        ]

    def close(self) -> None:
        self.source.close()
        for life in self.lives.values():
            life.group.close()
        for host in self._offset_hosts.values():
            host.kill()
