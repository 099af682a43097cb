"""Spoiled requests: frames of real clients, changed in the ways that find faults in decoders."""

from __future__ import annotations

from random import Random

from tests.protocol.frames import captured_frames

LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x00",
)
LYING_NUMBERS = (-1, -2, 0, 1, 127, 128, 32_767, 65_536, 1_000_001, 2**31 - 1, -(2**31))
FILLERS = (b"\x00", b"\x01", b"\x02", b"\xff", b"\x00\x01", b"\x01\x00\x00\x00")

#: The lengths of a frame and of a client id are spoiled too, but rarely: nearly all such frames
#: end there, and the interesting ones get further.
TRUTHFUL = 0.85


class Mutator:
    """Makes spoiled frames; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seeds = [frame.data for frame in captured_frames()]
        self.kinds = (
            self.flip, self.flip, self.cut, self.insert, self.remove, self.lie, self.lie,
            self.abuse_varint, self.splice, self.fill, self.version, self.repeat,
        )  # fmt: skip

    def frame(self) -> bytes:
        """One spoiled frame, usually with a length that fits."""
        random = self.random
        data = bytearray(random.choice(self.seeds))
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            data = random.choice(self.kinds)(data)
        if random.random() < TRUTHFUL and len(data) >= 4:
            data[:4] = (len(data) - 4).to_bytes(4, "big")
        return bytes(data)

    def position(self, data: bytearray) -> int:
        """Somewhere in the body, or, one time in ten, anywhere."""
        first = 0 if self.random.random() < 0.1 else 14
        return self.random.randrange(min(first, len(data)), len(data) + 1)

    def flip(self, data: bytearray) -> bytearray:
        at = self.position(data)
        if at < len(data):
            data[at] ^= 1 << self.random.randrange(8)
        return data

    def cut(self, data: bytearray) -> bytearray:
        return data[: self.position(data)]

    def insert(self, data: bytearray) -> bytearray:
        at = self.position(data)
        data[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 8, 40)))
        return data

    def remove(self, data: bytearray) -> bytearray:
        at = self.position(data)
        del data[at : at + self.random.choice((1, 2, 4, 8, 40))]
        return data

    def lie(self, data: bytearray) -> bytearray:
        at = self.position(data)
        size = self.random.choice((1, 2, 4))
        number = self.random.choice(LYING_NUMBERS) & ((1 << 8 * size) - 1)
        data[at : at + size] = number.to_bytes(size, "big")
        return data

    def abuse_varint(self, data: bytearray) -> bytearray:
        at = self.position(data)
        data[at : at + self.random.randrange(2)] = self.random.choice(LONG_VARINTS)
        return data

    def splice(self, data: bytearray) -> bytearray:
        other = self.random.choice(self.seeds)
        return data[: self.position(data)] + other[self.random.randrange(len(other)) :]

    def fill(self, data: bytearray) -> bytearray:
        """A run of bytes that are small counts and lengths: the most elements for the least."""
        at = self.position(data)
        filler = self.random.choice(FILLERS)
        return data[:at] + filler * self.random.choice((10, 100, 400))

    def version(self, data: bytearray) -> bytearray:
        if len(data) > 8:
            data[7] = self.random.randrange(20)
            if self.random.random() < 0.3:
                data[5] = self.random.randrange(80)
        return data

    def repeat(self, data: bytearray) -> bytearray:
        at = self.position(data)
        piece = data[at : at + self.random.randrange(1, 60)]
        data[at:at] = piece * self.random.randrange(1, 5)
        return data
