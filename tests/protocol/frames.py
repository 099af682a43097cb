"""The frames in `corpus/`, which real clients sent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from protocol.registry import APIS, Api

FOLDER = Path(__file__).parent / "corpus"

#: (library, API) -> bytes that it sends behind the last field. librdkafka ends this request's tags
#: twice.
LEFT_OVER = {("confluent-kafka", "AlterUserScramCredentials"): 1}


class Frame(NamedTuple):
    client: str
    data: bytes
    """The frame with its length."""

    @property
    def api(self) -> Api:
        return APIS[int.from_bytes(self.data[4:6], "big")]

    @property
    def version(self) -> int:
        return int.from_bytes(self.data[6:8], "big")

    @property
    def left_over(self) -> int:
        """How many bytes follow the last field. Apache Kafka does not mind them."""
        return LEFT_OVER.get((self.client.partition(" ")[0], self.api.name), 0)

    @property
    def body(self) -> bytes:
        """What follows the header up to the last field; the clients here send no tags in it."""
        position = 14 + max(0, int.from_bytes(self.data[12:14], "big", signed=True))
        if self.version >= self.api.first_flexible:
            assert self.data[position] == 0, "tags in the request header"
            position += 1
        return self.data[position : len(self.data) - self.left_over]

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} of {self.client}"


def captured_frames() -> list[Frame]:
    """All of them, always in the same order."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            client, _, data = line.rpartition(": ")
            found.append(Frame(client, bytes.fromhex(data)))
    return found
