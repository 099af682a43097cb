"""Writing the state of a metadata log as a snapshot; a controller does it, and an observer."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from protocol.logdata.metadata import encode_record, fits
from storage.metadata.snapshots import SnapshotWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.logdata.metadata import ControlRecord
    from storage.filesystem import Filesystem
    from storage.metadata.image import MetadataImage
    from storage.metadata.snapshots import SnapshotId

RECORDS_AT_ONCE = 64
"""Records that are encoded between two writes, in less than half a millisecond. Other threads get
the interpreter back at each."""


def write_image(
    files: Filesystem,
    folder: str,
    snapshot_id: SnapshotId,
    image: MetadataImage,
    controls: Sequence[ControlRecord],
    *,
    last_contained_ms: int,
    unique: str,
    now_ms: int,
    pause: Callable[[], None] | None = None,
) -> None:
    """Write and publish it, on any thread that has the image to itself; arguments as those of
    SnapshotWriter. `pause` is called after each write. Raises OSError; then there is none.

    What the log said at a higher level of metadata.version and cannot say at this one is left out,
    as Kafka does.
    """
    level = image.metadata_version
    with SnapshotWriter(
        files,
        folder,
        snapshot_id,
        last_contained_ms=last_contained_ms,
        unique=unique,
        first_records=controls,
        now_ms=now_ms,
    ) as writer:
        records = image.records()
        while some := list(islice(records, RECORDS_AT_ONCE)):
            writer.append(
                [(None, encode_record(one, level=level)) for one in some if fits(one, level)]
            )
            if pause is not None:
                pause()
        writer.finish()
