"""Opening the metadata of a data directory, to lead it: what a broker's start does first.

A change that was not finished (an open metadata transaction) is taken back; a log that is empty
begins with what `bootstrap.checkpoint` says. A directory with partitions and no metadata is
refused: it would be an empty cluster that looks healthy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata import AbortTransactionRecord, FeatureLevelRecord
from storage.errors import DataDirectoryError
from storage.layout import METADATA_LOG, PARTITION_METADATA, partition_of
from storage.metadata.bootstrap import (
    TRANSACTIONS_SINCE,
    encode_bootstrap,
    in_transaction,
    read_bootstrap,
)
from storage.metadata.elsewhere import require_all_here
from storage.metadata.image import METADATA_VERSION_FEATURE
from storage.metadata.loading import load
from storage.metadata.lost_topics import require_none_lost
from storage.metadata.metadata_log import MetadataLog, MetadataLogSettings
from storage.metadata.snapshots import BOOTSTRAP
from storage.metadata.store import RECORDS_OF_A_BATCH, MetadataStore
from storage.reports import RecoveryReport
from storage.steps import run_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.logdata.metadata import MetadataRecord
    from storage.filesystem import Filesystem
    from storage.identity import MetaProperties
    from storage.metadata.image import MetadataImage, PartitionState
    from storage.metadata.loading import Loaded


MIGRATION_UNDER_WAY = (1, 2)
"""States of ZkMigrationStateRecord: migrating, and about to."""


def open_metadata(
    files: Filesystem,
    path: str,
    identity: MetaProperties,
    *,
    now_ms: Callable[[], int],
    settings: MetadataLogSettings | None = None,
    processes: int = 1,
) -> tuple[MetadataStore, list[RecoveryReport]]:
    """Load, open and lead the metadata log of the data directory `path`, in a new epoch. So many
    `processes` share the partitions.

    Raises DataDirectoryError (MetadataRefused) with the file and what to do, OSError.
    """
    loaded = load(files, path)
    image = loaded.image
    _require_one_voter(loaded, identity)
    _require_no_migration(loaded)
    require_all_here(files, path, loaded.image, identity)
    _require_mine(image, identity.node_id)
    beginning: list[MetadataRecord] = []
    if not image.features and not image.topics and not image.brokers:
        _require_no_partitions(files, path)
        beginning = _bootstrap(files, path, now_ms())
    else:
        require_none_lost(files, path, image)
    log, reports = MetadataLog.open(
        files, path, loaded, settings or MetadataLogSettings(), now_ms=now_ms()
    )
    if loaded.torn is not None:
        torn = loaded.torn
        reports = [one for one in reports if (one.file, one.position) != (torn.file, torn.position)]
        reports.append(
            RecoveryReport(
                METADATA_LOG,
                "the end of an append that a crash cut off; it was not acknowledged",
                file=torn.file,
                position=torn.position,
                bytes_cut=torn.size,
                next_offset=loaded.end_offset,
            )
        )
    reports += log.begin_epoch(identity.node_id, now_ms=now_ms())
    if image.transaction is not None:
        reports.append(RecoveryReport(METADATA_LOG, "a change that was not finished is taken back"))
        # The transaction may have been the one that was to name the level.
        abort = AbortTransactionRecord(reason="Controller failover")
        level = max(image.metadata_version, TRANSACTIONS_SINCE)
        run_here(log.append([abort], now_ms=now_ms(), level=level))
    if beginning:
        _begin(log, beginning, now_ms())
    store = MetadataStore(log, identity.node_id, identity.directory_id, now_ms, processes=processes)
    return store, reports


def _bootstrap(files: Filesystem, path: str, now_ms: int) -> list[MetadataRecord]:
    """First records of a new log, from its bootstrap file, which is written if missing."""
    if not files.exists(f"{path}/{BOOTSTRAP}"):
        files.write_atomic(f"{path}/{BOOTSTRAP}", encode_bootstrap(now_ms))
    return read_bootstrap(files, path)


def _begin(log: MetadataLog, records: list[MetadataRecord], now_ms: int) -> None:
    level = next(
        record.feature_level
        for record in records
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE
    )
    if level < TRANSACTIONS_SINCE:
        run_here(log.append(records, now_ms=now_ms, level=level))
        return
    records = in_transaction(records)
    starts = range(0, len(records), RECORDS_OF_A_BATCH)
    operations = [records[start : start + RECORDS_OF_A_BATCH] for start in starts]
    run_here(log.append(*operations, now_ms=now_ms, level=level))


def _require_one_voter(loaded: Loaded, identity: MetaProperties) -> None:
    """A log that other nodes vote on, too, is theirs as well: going on alone would fork it."""
    if loaded.voters is None:
        return
    voters = [voter.voter_id for voter in loaded.voters.voters]
    if voters != [identity.node_id]:
        raise DataDirectoryError(
            f"{loaded.folder}: the controllers {voters} vote on this log, and this is node "
            f"{identity.node_id}: only the directory of a single controller can be opened"
        )


def _require_no_migration(loaded: Loaded) -> None:
    """While a cluster moves away from ZooKeeper, that has a part of the truth."""
    migration = loaded.image.zk_migration
    if migration is not None and migration.zk_migration_state in MIGRATION_UNDER_WAY:
        raise DataDirectoryError(
            f"{loaded.folder}: the cluster's migration from ZooKeeper is under way (state "
            f"{migration.zk_migration_state}): let Apache Kafka finish it and try again"
        )


def _require_mine(image: MetadataImage, node_id: int) -> None:
    """Every partition is one that this node may serve: the numbers have no gap, and this node has
    all of the records."""
    for topic in image.topics.values():
        for number in range(len(topic.partitions)):
            state = topic.partitions.get(number)
            if state is None:
                raise DataDirectoryError(
                    f"topic '{topic.name}' has {len(topic.partitions)} partitions and none "
                    f"with the number {number}"
                )
            if not _is_complete(state, node_id):
                raise DataDirectoryError(
                    f"partition {number} of topic '{topic.name}' is kept by nodes "
                    f"{list(state.replicas)}, in sync are {list(state.isr)}; this node is "
                    f"{node_id} and can only open a directory that is complete in "
                    f"itself: let Apache Kafka move all partitions to node {node_id} "
                    f"(kafka-reassign-partitions) and try again"
                )


def _is_complete(state: PartitionState, node_id: int) -> bool:
    """Whether the node has all records of a partition. A Kafka 4 that was stopped has left the
    replicas in sync, and been noted as one that may lead all the same (KIP-966)."""
    mine = (node_id,)
    return state.isr == mine or (not state.isr and mine in (state.replicas, state.elr))


def _require_no_partitions(files: Filesystem, path: str) -> None:
    for name in files.list_dir(path):
        if partition_of(name) and files.exists(f"{path}/{name}/{PARTITION_METADATA}"):
            raise DataDirectoryError(
                f"{path}/{METADATA_LOG} says nothing of any topic, but there are partitions such "
                f"as {name}: restore that folder, or use an empty directory"
            )
