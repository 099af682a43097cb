"""How long requests and syncs take, who is connected, and which sets were refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.metrics.text import Family, histogram_rows, labels
from broker.request_times import ALL_TIMED, PHASES, TIMED_EVERY
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.metrics.text import Row
    from broker.network.connections import Connections
    from broker.producing.appends import Appends
    from broker.producing.group_commit import GroupCommit
    from broker.request_times import RequestTimes

SOFTWARE_MAX = 100
"""Names and versions of client software that have a row of their own: those with most connections.
The others share one."""
OTHER = "other"


def request_families(times: RequestTimes) -> Iterator[Family]:
    """At most one histogram for each API and phase."""
    meaning = (
        "Time of requests by phase: queue, local (handling and writing), wait (for records, "
        "members or changes), disk (acks=all), send. Of each version of an API the first "
        f"{ALL_TIMED} are timed, then one of {TIMED_EVERY}, which counts for all of them."
    )
    rows = (
        row
        for (api, phase), histogram in sorted(times.histograms.items())
        for row in histogram_rows(histogram, api=api, phase=PHASES[phase])
    )
    yield Family("request_seconds", "histogram", meaning, rows)


def sync_families(group_commit: GroupCommit) -> Iterator[Family]:
    meaning = "Time of the syncs that acks=all, groups and transactions wait for."
    yield Family("sync_seconds", "histogram", meaning, histogram_rows(group_commit.sync_times))
    failed = "Logs that could not be synced."
    yield Family("sync_failures_total", "counter", failed, [("", group_commit.failures)])


def client_families(connections: Connections) -> Iterator[Family]:
    meaning = (
        "Open connections by the software that the client has named (Kafka 2.4 and later); beyond "
        f"{SOFTWARE_MAX} rows the rest is '{OTHER}'."
    )
    yield Family("client_connections", "gauge", meaning, _software_rows(connections))


def _software_rows(connections: Connections) -> Iterable[Row]:
    named = ((one.context.software_name, one.context.software_version) for one in connections)
    counted = Counter(named)
    shown = counted.most_common(SOFTWARE_MAX)
    rest = counted.total() - sum(count for _, count in shown)
    if rest:
        shown.append(((OTHER, OTHER), rest))
    for (name, version), count in shown:
        yield labels(software_name=name, software_version=version), count


def refusal_families(appends: Appends) -> Iterator[Family]:
    meaning = "Produced sets that were refused, or could not be written, by error."
    rows = [(labels(error=ErrorCode(code).name), n) for code, n in sorted(appends.refused.items())]
    yield Family("produce_refusals_total", "counter", meaning, rows)
