"""The metrics page of a broker, read as a scraper reads it."""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING, NamedTuple

from broker.metrics.families import families
from broker.metrics.text import page

if TYPE_CHECKING:
    from broker.metrics.families import Sources

OF_PROCESS = re.compile(r'\{process="\d+"\}|(?<=\{)process="\d+",')
"""The label that all rows of one of several processes have."""


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


def scrape(port: int, path: str = "/metrics", *, method: str = "GET", accept: str = "*/*") -> Page:
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return Page(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def rows(port: int) -> dict[str, float]:
    """Every row of the page: its name with its labels, without the prefix, and its value."""
    lines = [line for line in scrape(port).body.splitlines() if not line.startswith("#")]
    parted = [line.rpartition(" ") for line in lines]
    return {name.removeprefix("triglot_"): float(value) for name, _, value in parted}


def counters(port: int) -> dict[str, float]:
    """The same, without the label that says of which process."""
    return {OF_PROCESS.sub("", name): value for name, value in rows(port).items()}


def page_of(sources: Sources) -> str:
    """The page of a broker in this process."""
    steps = page(families(sources), open_metrics=False)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return str(end.value)


class CodecCalls:
    """The calls of codecs since this was made.

    calls = CodecCalls(port)
    ...
    assert calls.made() == {"decompress gzip": 1}
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._before = self._now()

    def made(self) -> dict[str, int]:
        """The calls that were made, by "compress" or "decompress" and codec; none is left out."""
        return {
            name: count - self._before[name]
            for name, count in self._now().items()
            if count != self._before[name]
        }

    def _now(self) -> dict[str, int]:
        found = counters(self._port)
        return {
            f"{call} {codec}": int(found[f'codec_calls_total{{codec="{codec}",call="{call}"}}'])
            for call in ("compress", "decompress")
            for codec in ("gzip", "snappy", "lz4", "zstd")
        }
