"""A declaration and a version into a decoder or an encoder, at first use.

The functions are generated as Python source: the branch on the version is taken while writing
it, neighbours of fixed width share one `struct` call together with a length that follows, and
structs inside structs are written in line. `python -m protocol.compiler OffsetCommitRequest 8
decode` prints the source; a traceback shows its lines. `decoding.py` and `encoding.py` write
the two kinds, `source.py` is what they share.

Writing and compiling one takes about a millisecond, so it is done when a version is first met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.decoding import DecoderSource
from protocol.encoding import EncoderSource

if TYPE_CHECKING:
    from protocol.fields import Decoder, Encoder, StructType
    from protocol.source import Source


def compile_decoder(cls: StructType, version: int) -> Decoder:
    decode: Decoder = DecoderSource(cls, version).finish()
    return decode


def compile_encoder(cls: StructType, version: int) -> Encoder:
    encode: Encoder = EncoderSource(cls, version).finish()
    return encode


def find_message(name: str) -> StructType:
    """The message of this name, or of "module:Name"."""
    from importlib import import_module

    module, _, class_name = name.rpartition(":")
    if not module:
        stem = class_name.removesuffix("Request").removesuffix("Response")
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in stem).lstrip("_")
        module = f"{__package__}.messages.{snake}"
    message: StructType = getattr(import_module(module), class_name)
    return message


def main(arguments: list[str]) -> int:
    match arguments:
        case [name, version, ("decode" | "encode") as verb]:
            write: type[Source] = DecoderSource if verb == "decode" else EncoderSource
            try:
                source = write(find_message(name), int(version))
            except (ImportError, AttributeError, ValueError) as error:
                print(error)
                return 1
            print("\n".join(source.lines))
            return 0
    print(f"usage: python -m {__name__} [module:]NAME VERSION decode|encode")
    return 2


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
