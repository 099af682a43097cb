"""The frames in `corpus/`, which real clients sent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from protocol.registry import APIS, Api

FOLDER = Path(__file__).parent / "corpus"


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
    def body(self) -> bytes:
        """What follows the header; the clients here send no tags in it."""
        position = 14 + max(0, int.from_bytes(self.data[12:14], "big", signed=True))
        if self.version >= self.api.first_flexible:
            assert self.data[position] == 0, "tags in the request header"
            position += 1
        return self.data[position:]

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
