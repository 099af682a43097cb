"""What the operating system tells of the process, under the names that every exporter uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker import clock
from broker.metrics.text import Family

if TYPE_CHECKING:
    from collections.abc import Iterator


def process_families() -> Iterator[Family]:
    """Memory is left out where the system does not say."""
    cpu = "CPU time of the process, in seconds."
    yield Family("process_cpu_seconds_total", "counter", cpu, [("", clock.process_s())])
    resident = clock.resident_bytes()
    if resident is not None:
        memory = "Resident memory."
        yield Family("process_resident_memory_bytes", "gauge", memory, [("", resident)])
