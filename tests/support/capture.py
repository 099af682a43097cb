"""Capturing the frames that real clients send, for the corpus in tests/protocol/corpus.

    python -m tests.support.capture --listen 127.0.0.1:19092 --to 127.0.0.1:9092 \
        --client "confluent-kafka 2.12" --into tests/protocol/corpus

A plain proxy: it passes everything on and keeps, for each API and version, the first frame of a
client. The broker behind it must advertise the proxy's address (advertised.listeners). One file per
API and version, a line per frame: who sent it, then the frame in hex, its length included.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from protocol.registry import APIS

LONGEST_FRAME_KEPT = 6_000
"""A larger frame would make the corpus large and says nothing that a small one doesn't."""


class Corpus:
    """The files, and what they hold already."""

    def __init__(self, folder: Path, client: str) -> None:
        self._folder = folder
        self._client = client

    def keep(self, frame: bytes) -> None:
        key = int.from_bytes(frame[4:6], "big")
        version = int.from_bytes(frame[6:8], "big")
        if key not in APIS or len(frame) > LONGEST_FRAME_KEPT:
            return
        path = self._folder / f"{APIS[key].module}_v{version}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        if any(line.startswith(f"{self._client}: ") for line in lines):
            return
        lines.append(f"{self._client}: {frame.hex()}")
        path.write_text("\n".join(sorted(lines)) + "\n")


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, corpus: Corpus | None
) -> None:
    pending = b""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
            if corpus is None:
                continue
            pending += data
            while len(pending) >= 4:
                size = int.from_bytes(pending[:4], "big") + 4
                if len(pending) < size:
                    break
                corpus.keep(pending[:size])
                pending = pending[size:]
    except ConnectionError:
        pass
    finally:
        writer.close()


async def capture(listen: tuple[str, int], to: tuple[str, int], corpus: Corpus) -> None:
    """Run the proxy until it is cancelled."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*to)
        await asyncio.gather(
            _pass_on(reader, upstream_writer, corpus), _pass_on(upstream_reader, writer, None)
        )

    server = await asyncio.start_server(serve, *listen)
    async with server:
        await server.serve_forever()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=_address, required=True)
    parser.add_argument("--to", type=_address, required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--into", type=Path, required=True)
    arguments = parser.parse_args()
    corpus = Corpus(arguments.into, arguments.client)
    asyncio.run(capture(arguments.listen, arguments.to, corpus))


if __name__ == "__main__":
    main()
