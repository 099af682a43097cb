"""What Spark's checkpoint of a query tells: which micro-batches were planned, and up to where.

offsets/N    written before micro-batch N begins: a version, a line of metadata, and a line for
             each source, ours {"orders": {"0": 23}}
commits/N    written when it is done
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyarrow import fs

from pipeline.errors import ForeignState
from pipeline.reading.plan import Offsets, offsets_from_json

if TYPE_CHECKING:
    from pipeline.state import State


def planned(state: State, batch_id: int) -> bool:
    """Whether a micro-batch is in the checkpoint, which keeps the last hundred or so."""
    return state.location.under("checkpoint", "offsets", str(batch_id)).exists()


def reached(state: State) -> Offsets | None:
    """The next offset of each partition after the last micro-batch that is done; None before one.

    Raises ForeignState for a checkpoint that is no query's over our source.
    """
    commits = state.location.under("checkpoint", "commits")
    selector = fs.FileSelector(commits.path, allow_not_found=True)
    done = [
        int(info.base_name)
        for info in commits.filesystem.get_file_info(selector)
        if info.base_name.isdecimal()
    ]
    if not done:
        return None
    log = state.location.under("checkpoint", "offsets", str(max(done)))
    try:
        with log.filesystem.open_input_stream(log.path) as stream:
            return offsets_from_json(json.loads(stream.read().splitlines()[2]))
    except (OSError, ValueError, IndexError, AttributeError) as failure:
        raise ForeignState(f"{log.path} is no list of offsets: {failure}") from None
