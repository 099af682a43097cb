"""Consumer groups of every client: what their members read, own and commit.

The groups live at the same time and read the same topic of 50 partitions, which is written all the
while. In each, members join and leave, one is paused until it is expelled and goes on, a static one
is restarted, one is killed; then the server is killed and stopped under them. Members report every
assignment, record and commit, and the tests judge that. `TEST_GROUPS_SEED` sets what is written.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.clients.available import MARKS, end_of_test
from tests.clients.groups.group_clients import BETWEEN, BY_KEY, GROUP_CLIENTS, OFFSET_CLIENTS
from tests.clients.groups.play import TOPIC, Play, group_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark.structures import ParameterSet

    from tests.clients.groups.group_clients import GroupClient
    from tests.clients.groups.life import Life

# The first run on a machine fetches every client, and all groups live in the first test.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        "TEST_BOOTSTRAP" in os.environ, reason="a server from outside cannot be stopped"
    ),
]

#: In it each client commits an offset of one partition.
SHARED_GROUP = "offsets-of-all"

#: Partitions from here on have offsets without metadata; this one has none.
WITHOUT_METADATA, NOT_COMMITTED = 24, 49

#: Clients that commit or look at the same time.
AT_ONCE = 4


def params(*clients: GroupClient) -> list[ParameterSet]:
    return [
        pytest.param(
            client.key,
            id=client.key,
            marks=(*MARKS[client.runtime], *((pytest.mark.long,) if client.key in BETWEEN else ())),
        )
        for client in clients
    ]


EVERY_CLIENT = params(*GROUP_CLIENTS)
STATIC_CLIENTS = params(*(client for client in GROUP_CLIENTS if client.static))

#: By the partition that is a client's own: the offset that it committed, and the metadata.
Committed = dict[int, tuple[int, str]]
#: By client: [partition, offset, metadata] of each partition that was asked for.
Seen = dict[str, list[list[object]]]


@pytest.fixture(scope="module")
def play(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Play]:
    """The groups of the clients whose tests run, or of all: `BETWEEN` have a run of their own."""
    wanted = {
        value
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
        if hasattr(item, "callspec")
        for value in item.callspec.params.values()
    }
    clients = [client for client in GROUP_CLIENTS if client.key in wanted] or GROUP_CLIENTS
    folder = tmp_path_factory.mktemp("groups")
    seed = int(os.environ.get("TEST_GROUPS_SEED", random.randrange(1_000_000)))
    with group_server(folder / "data") as server:
        found = Play(server, folder, seed, clients=clients)
        try:
            found.run()
            yield found
        finally:
            found.close()


@pytest.fixture
def life(play: Play, request: pytest.FixtureRequest) -> Life:
    """The life of the group of the client that the parameter names."""
    key: str = request.param
    if key in play.missing:
        end_of_test(BY_KEY[key].runtime, f"{key}: {play.missing[key]}")
    if key not in play.lives:
        pytest.skip("Apache Kafka 3.9 has too old versions of its requests")
    life = play.lives[key]
    assert not life.error, f"seed {play.seed}: {life.error}"
    return life


@pytest.mark.parametrize("life", EVERY_CLIENT, indirect=True)
def test_members_that_come_and_go_share_all_partitions_and_read_all_records(life: Life) -> None:
    # A life that got this far waited for both after each change.
    assert len(life.ledger.reads) > 0
    assert life.ledger.unread(life.ledger.ends()) == {}


@pytest.mark.parametrize("life", EVERY_CLIENT, indirect=True)
def test_after_clean_hand_overs_each_record_was_read_once(life: Life) -> None:
    assert life.findings["once"] == []


@pytest.mark.parametrize("life", EVERY_CLIENT, indirect=True)
def test_what_was_committed_is_never_read_again_and_never_moves_back(life: Life) -> None:
    assert life.findings["faults"] == []


@pytest.mark.parametrize("life", EVERY_CLIENT, indirect=True)
def test_a_member_that_was_expelled_cannot_commit(life: Life) -> None:
    assert life.findings["expelled"] == []


@pytest.mark.parametrize("life", STATIC_CLIENTS, indirect=True)
def test_a_static_member_comes_back_and_nobody_else_hears_of_it(life: Life) -> None:
    assert life.findings["static"] == []


@pytest.mark.parametrize("life", EVERY_CLIENT, indirect=True)
def test_the_last_commits_are_what_the_group_finds_after_restarts(life: Life) -> None:
    assert life.findings["offsets"] == []


@pytest.mark.parametrize("ages", ["ends", pytest.param("between", marks=pytest.mark.long)])
def test_clients_of_several_ages_share_one_group_and_lead_it_in_turn(play: Play, ages: str) -> None:
    assert not play.mixed.error, f"seed {play.seed}: {play.mixed.error}"
    assert play.mixed.findings == {"once": [], "faults": []}


@pytest.fixture(scope="module")
def shared(play: Play) -> tuple[Committed, Seen]:
    """What each client committed in its partition, and what each saw of all partitions.

    The second half of the partitions holds offsets without metadata, for clients that it confuses.
    """
    words = {"bootstrap": play.server.bootstrap, "group": SHARED_GROUP, "topic": TOPIC}
    clients = play.offset_clients()
    put: Committed = {}
    seen: Seen = {}

    def commit(client: GroupClient) -> None:
        number = clients.index(client)
        partitions = {f"by-{client.key}": [number], "": [WITHOUT_METADATA + number]}
        if not client.gives_metadata:
            partitions = {"": [number, WITHOUT_METADATA + number]}
        for metadata, own in partitions.items():
            put.update({partition: (1_000 + partition, metadata) for partition in own})
            offsets = ",".join(f"{partition}:{1_000 + partition}" for partition in own)
            host = play.host(client)
            host.call("put", **client.words, **words, metadata=metadata, offsets=offsets)

    def look(client: GroupClient) -> None:
        asked = [partition for partition in put if client.shows_metadata or put[partition][1] == ""]
        partitions = ",".join(map(str, [*asked, NOT_COMMITTED]))
        found = play.host(client).call("get", **client.words, **words, partitions=partitions)
        seen[client.key] = sorted(found)

    # kafkajs joins the group for it; meanwhile others may not commit without being members.
    joining = [client for client in clients if client.runtime == "node"]
    for client in joining:
        commit(client)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(commit, [client for client in clients if client not in joining]))
        list(pool.map(look, clients))
    return put, seen


@pytest.mark.parametrize("reader", [*EVERY_CLIENT, *params(*OFFSET_CLIENTS)])
def test_offsets_committed_by_every_client_are_seen_by(
    reader: str, play: Play, shared: tuple[Committed, Seen]
) -> None:
    put, seen = shared
    if reader not in seen:
        pytest.skip("it has failed before, or Apache Kafka has no place for its offsets")
    shows = BY_KEY[reader].shows_metadata
    found = [entry if shows else entry[:2] for entry in seen[reader]]

    nothing = found.pop()
    wanted = [
        [partition, offset, metadata] if shows else [partition, offset]
        for partition, (offset, metadata) in sorted(put.items())
        if shows or metadata == ""
    ]

    assert nothing[:2] == [NOT_COMMITTED, -1]
    assert found == wanted
