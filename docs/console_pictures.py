"""The pictures of docs/console.md, of a real console in a real browser: `make console-pictures`.

A broker runs for some minutes, so that there are lines to see, while programs write and read.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import Cluster, TopicPartition
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.builder import build_batch
from tests.support.broker_process import BrokerProcess
from tests.support.browser import browser
from tests.support.caller import Caller
from tests.support.console import ConsoleClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent / "pictures"
RUNS_S = 200.0
BEAT_S = 0.25
CODEC = 4
RATES: dict[str, Callable[[int], int]] = {
    "orders": lambda beat: 20 + beat % 40,
    "clicks": lambda beat: 200 + 150 * (beat // 60 % 3),
    "payments": lambda beat: 15,
    "shipments": lambda beat: 8 if beat // 100 % 2 else 0,
    "returns": lambda beat: 1,
}
"""Records of each topic at a beat."""
GROUPS = {"billing": ("orders", 900), "fraud-check": ("payments", 9), "warehouse": ("shipments", 0)}
"""The topic of a group, and how many records it stays behind."""


class Picture(NamedTuple):
    name: str
    path: str
    scheme: str
    width: int
    height: int


PICTURES = (
    Picture("topics", "/topics", "light", 1180, 420),
    Picture("record", "/topics/orders/records?partition=0&offset=42", "light", 1180, 640),
    Picture("groups", "/groups", "dark", 1180, 330),
    Picture("clients", "/clients", "light", 1180, 480),
    Picture("phone", "/topics/orders/records?partition=0&offset=42", "dark", 390, 760),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder), arguments=("--console", "127.0.0.1:0"))
        with broker, browser() as running:
            _live(broker)
            for picture in PICTURES:
                _take(running, ConsoleClient(broker).url, picture)


def _live(broker: BrokerProcess) -> None:
    """What goes on in a shop."""
    for client_id, version in (("erp-export", 0), ("web-shop", 7)):
        with Caller(broker.host, broker.port, client_id=client_id) as caller:
            caller.call(ListOffsetsRequest(replica_id=-1, topics=[]), version=version)
    numbers = itertools.count()
    with Cluster(broker.bootstrap, client_id=b"order-service") as client:
        for topic in RATES:
            client.create_topic(topic, 1)
        until = time.monotonic() + RUNS_S
        for beat in itertools.count():
            if time.monotonic() > until:
                return
            for topic, rate in RATES.items():
                if rate(beat):
                    _write(client, topic, [next(numbers) for _ in range(rate(beat))])
            for group, (topic, behind) in GROUPS.items():
                place = TopicPartition(topic, 0)
                end = client.appended(place)
                client.commit_offsets(group, {place: max(0, end - behind)})
            time.sleep(BEAT_S)


def _write(client: Cluster, topic: str, numbers: list[int]) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [
        (
            now_ms,
            f"customer-{number % 1_000}".encode(),
            json.dumps(
                {"id": number, "topic": topic, "items": [{"sku": number % 97, "n": 2}]}
            ).encode(),
            (("trace", b"%016x" % number),),
        )
        for number in numbers
    ]
    client.produce(TopicPartition(topic, 0), [build_batch(records, codec=CODEC)])


def _take(running: Browser, url: str, picture: Picture) -> None:
    with running.new_context(
        base_url=url,
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.scheme == "dark" else "light",
    ) as context:
        page = context.new_page()
        page.goto(picture.path)
        page.screenshot(path=FOLDER / f"console-{picture.name}.png")


if __name__ == "__main__":
    main()
