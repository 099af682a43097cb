"""Protocol Buffers: the columns of a message, by descriptors that protoc or a registry has made.

Spark's own functions for them are in a jar that no release of Spark 4 has: tasks decode with
Google's package (`protobuf_messages`). A schema is kept as a FileDescriptorSet of all its files in
base64, itself the last.

A field is a column of the same name: numbers in the widest type that they fit into, an enumeration
by its names, a message as a structure, `google.protobuf.Timestamp` and wrappers as what they stand
for. A field that tells whether it is there (`optional`, of a oneof, a message) is null where not.
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import NotInstalled, Refused, WrongUse
from pipeline.values.json_values import merged_structures
from pipeline.values.protobuf_messages import (
    JSON,
    TIMESTAMP,
    WRAPPERS,
    ProtobufDecoder,
    Target,
    files,
    is_map,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pipeline.values.registry import RegisteredSchema

MOST_FIELDS = 5000
"""Of a message, with those inside; of messages that are used in several places in each."""
PROTOC_S = 60
WANTED = "pip install 'triglot[pipeline-values]'"
ROOT = "triglot_schema.proto"
"""What a schema is called that came without a name."""
KNOWN = ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
"""Files of google/protobuf/ that nobody registers."""


@dataclass(frozen=True)
class Protobuf:
    """The format of keys or values."""

    message: str | None = None
    """The full name of the message that columns are made of; None for the first of its file."""
    kind: str = "PROTOBUF"
    mark: bool = False

    def text_of(self, path: Path, content: bytes) -> str:
        """A schema from a file: descriptors that `protoc --include_imports --descriptor_set_out`
        has made, or a .proto, whose imports are looked for beside it. Raises Refused, WrongUse,
        NotInstalled."""
        if path.suffix == ".proto":
            return _compiled(path.parent, path.name, str(path))
        try:
            _set_of(content)
        except ValueError:
            raise WrongUse(
                f"{path} is neither descriptors (protoc --include_imports --descriptor_set_out) "
                "nor a .proto"
            ) from None
        return base64.b64encode(content).decode()

    def texts_of(self, registered: RegisteredSchema, what: str) -> tuple[str, ...]:
        """A schema of a registry. Raises Refused, NotInstalled."""
        named = [*zip(registered.names, registered.references, strict=True)]
        named.append((ROOT, registered.text))
        parsed = {name: _descriptor(name, text) for name, text in named}
        if all(parsed.values()):
            return (_encoded([one for one in parsed.values() if one is not None]),)
        with tempfile.TemporaryDirectory(prefix="triglot-") as place:
            for name, text in named:
                _write(Path(place), name, text, what)
            return (_compiled(Path(place), ROOT, what),)

    def merged(self, reader: str | None, texts: Sequence[str], what: str) -> str:
        """The structure that takes what was read until now, and the schema that comes last: as
        Spark writes types in JSON. Raises Refused, with `what` in its line, and NotInstalled."""
        found = self._message(texts[-1], what)
        new = _Reading(what).structure(found, ())
        if not new["fields"]:
            raise Refused(f"{what}: {found.full_name} has no fields, and columns are made of these")
        known = new if reader is None else json.loads(reader)
        return json.dumps(merged_structures(known, new, what))

    def decoder(
        self, writers: Mapping[int, Sequence[str]], reader: str, *, header: bool
    ) -> ProtobufDecoder:
        """What decodes in a task."""
        targets = {
            id_: Target(texts[-1], str(self._message(texts[-1], f"schema {id_}").full_name))
            for id_, texts in writers.items()
        }
        return ProtobufDecoder(targets, header, arrow_type(reader))

    @staticmethod
    def required(reader: str) -> tuple[tuple[str, ...], ...]:
        """None: the decoder looks for what a message must have."""
        return ()

    @staticmethod
    def renamed(reader: str) -> dict[tuple[str, ...], str]:
        """Nothing: a field with another name is another column."""
        return {}

    def _message(self, descriptors: str, what: str) -> Any:
        _refuse_without_package()
        try:
            file = files(descriptors)[-1]
        except (TypeError, KeyError, ValueError) as failure:
            line = " ".join(str(failure).split())[:300]
            raise Refused(
                f"the files of {what} do not go together ({line}): make descriptors with protoc "
                "--include_imports"
            ) from None
        messages = list(file.message_types_by_name.values())
        if self.message is None and messages:
            return messages[0]
        try:
            return file.pool.FindMessageTypeByName(self.message or "")
        except KeyError:
            names = ", ".join(one.full_name for one in messages[:10]) or "none"
            wanted = "no message" if self.message is None else f"no message {self.message}"
            raise Refused(f"{what} has {wanted}; those of its file: {names}") from None


def arrow_type(structure: str) -> pa.DataType:
    """Of a structure that is written in JSON as Spark writes types."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    return to_arrow_type(StructType.fromJson(json.loads(structure)), timezone="UTC")


class _Reading:
    """A message as one of Spark's types."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._open: list[str] = []
        self._fields = 0

    def structure(self, message: Any, path: tuple[str, ...]) -> dict[str, Any]:
        name = message.full_name
        if name in self._open:
            self._refuse(path, f"{name} has itself in it, and columns cannot be recursive")
        self._open.append(name)
        fields = []
        for field in message.fields:
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise Refused(
                    f"{self._what} has over {MOST_FIELDS:,} fields, and no table has so many"
                )
            type_ = self._type(field, (*path, field.name))
            fields.append({"name": field.name, "type": type_, "nullable": True, "metadata": {}})
        self._open.pop()
        return {"type": "struct", "fields": fields}

    def _type(self, field: Any, path: tuple[str, ...]) -> Any:
        if is_map(field):
            entry = field.message_type.fields_by_name
            return {
                "type": "map",
                "keyType": self._single(entry["key"], (*path, "key")),
                "valueType": self._single(entry["value"], (*path, "value")),
                "valueContainsNull": True,
            }
        single = self._single(field, path)
        if field.is_repeated:
            return {"type": "array", "elementType": single, "containsNull": True}
        return single

    def _single(self, field: Any, path: tuple[str, ...]) -> Any:
        if field.enum_type is not None:
            return "string"
        message = field.message_type
        if message is None:
            return _scalar(field)
        if message.full_name == TIMESTAMP:
            return "timestamp"
        if message.full_name in WRAPPERS:
            return _scalar(message.fields_by_name["value"])
        if message.full_name in JSON:
            return "string"
        # Parquet has no structure without fields; whether it is there can be told all the same.
        return self.structure(message, path) if message.fields else "boolean"

    def _refuse(self, path: tuple[str, ...], why: str) -> None:
        raise Refused(f"{self._what}: {'.'.join(path) or 'the whole'}: {why}")


def _scalar(field: Any) -> str:
    kinds = {
        field.TYPE_BOOL: "boolean",
        field.TYPE_BYTES: "binary",
        field.TYPE_DOUBLE: "double",
        field.TYPE_FLOAT: "float",
        field.TYPE_STRING: "string",
        field.TYPE_INT32: "integer",
        field.TYPE_SINT32: "integer",
        field.TYPE_SFIXED32: "integer",
        field.TYPE_UINT64: "decimal(20,0)",
        field.TYPE_FIXED64: "decimal(20,0)",
    }
    return kinds.get(field.type, "long")


def _refuse_without_package() -> None:
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        raise NotInstalled(f"Protobuf needs the package protobuf: {WANTED}") from None


def _set_of(content: bytes) -> Any:
    """Raises ValueError."""
    _refuse_without_package()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(content)
    except DecodeError as failure:
        raise ValueError(str(failure)) from None
    if not any(one.name for one in found.file):
        raise ValueError("no files")
    return found


def _descriptor(name: str, text: str) -> Any:
    """A file as registries have it that are given it by Confluent's serializer for Python; None if
    it is a .proto."""
    _refuse_without_package()
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    found.name = name
    return found


def _encoded(found: Sequence[Any]) -> str:
    """The set of files, with those of Google's that they import."""
    from importlib import import_module

    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    whole = FileDescriptorSet()
    there = {one.name for one in found}
    for name in KNOWN:
        known = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
        if known.name not in there and any(known.name in one.dependency for one in found):
            known.CopyToProto(whole.file.add())
    for one in found:
        whole.file.append(one)
    assert isinstance(whole.file[0], FileDescriptorProto)
    return base64.b64encode(whole.SerializeToString()).decode()


def _write(folder: Path, name: str, text: str, what: str) -> None:
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise Refused(f"{what} refers to a file {name}, which is no name below a folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def _compiled(folder: Path, name: str, what: str) -> str:
    """The descriptors of a .proto in a folder. Raises Refused, NotInstalled."""
    with tempfile.TemporaryDirectory(prefix="triglot-") as place:
        made = Path(place) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}"]
        command += ["--include_imports", f"--descriptor_set_out={made}", name]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PROTOC_S)
        if ran.returncode == 0:
            return base64.b64encode(made.read_bytes()).decode()
    if "No module named" in ran.stderr:
        raise NotInstalled(f"a .proto needs the package grpcio-tools: {WANTED}")
    told = " ".join(ran.stderr.replace(ROOT, what).split())[:300]
    raise Refused(f"{what} is no schema of Protocol Buffers: {told}")
