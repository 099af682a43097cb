"""The identity of a data directory and of a partition: `meta.properties` and `partition.metadata`.

`meta.properties`: Java properties with node id, cluster id and directory id.
What if it is lost: the directory would be taken for a new one; the broker does not start on a
directory that has topics without it.

`partition.metadata`: two lines, version and topic id. It tells a partition from
one of a deleted topic of the same name. What if it is lost: it is written again if the
topic is known.
"""

from __future__ import annotations

from binascii import Error as BadBase64
from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

from config.errors import ConfigError
from config.properties import parse_properties
from storage.errors import DataDirectoryError, MalformedFile
from storage.layout import META_PROPERTIES, METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.filesystem import Filesystem

UUID_TEXT_LENGTH = 22
PADDING = "=="
RESERVED_IDS = 100
"""Directory ids below this number have a meaning of their own in Kafka's metadata."""

ZERO_UUID = bytes(16)


def uuid_text(raw: bytes) -> str:
    """Sixteen bytes as Kafka prints them: URL-safe base64 without padding, 22 characters."""
    text = b2a_base64(raw, newline=False).rstrip(b"=")
    return text.replace(b"+", b"-").replace(b"/", b"_").decode("ascii")


def uuid_of(text: str) -> bytes:
    """Sixteen bytes of a printed id, with or without base64's padding, which Kafka accepts too.
    Raises ValueError."""
    bare = text.removesuffix(PADDING)
    if len(bare) != UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} has {len(bare)} characters, wanted {UUID_TEXT_LENGTH}")
    try:
        raw = a2b_base64(bare.replace("-", "+").replace("_", "/") + PADDING)
    except (BadBase64, ValueError) as error:
        raise ValueError(f"{text!r} is not base64") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not sixteen bytes")
    return raw


def new_directory_id(new_uuid: Callable[[], bytes]) -> str:
    """An id that is neither reserved nor begins with a hyphen, which tools take for an option."""
    while True:
        raw = new_uuid()
        text = uuid_text(raw)
        if int.from_bytes(raw, "big") >= RESERVED_IDS and not text.startswith("-"):
            return text


def decode_properties(data: bytes, path: str) -> dict[str, str]:
    """Keys and values of a Java properties file. Raises MalformedFile."""
    try:
        return {entry.name: entry.text for entry in parse_properties(data, path)}
    except ConfigError as error:
        reasons = "; ".join(f"{one.key}: {one.reason}" for one in error.problems)
        raise MalformedFile(path, reasons) from error


class MetaProperties:
    """The identity of a data directory."""

    __slots__ = ("cluster_id", "directory_id", "node_id")

    def __init__(self, *, node_id: int, cluster_id: str, directory_id: str) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id

    def encode(self) -> bytes:
        return (
            "#\n"
            f"node.id={self.node_id}\n"
            f"directory.id={self.directory_id}\n"
            "version=1\n"
            f"cluster.id={self.cluster_id}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> MetaProperties:
        """Read the file; `directory_id` is as we print it, empty if there is none.

        Raises MalformedFile.
        """
        properties = decode_properties(data, path)
        version = properties.get("version", "0")
        if version not in ("0", "1"):
            raise MalformedFile(path, f"version is {version!r}, known are 0 and 1")
        node_key = "node.id" if version == "1" else "broker.id"
        node_id, cluster_id = properties.get(node_key), properties.get("cluster.id")
        if not node_id or not cluster_id:
            raise MalformedFile(path, f"{node_key} and cluster.id are wanted")
        try:
            number = int(node_id)
        except ValueError:
            raise MalformedFile(path, f"{node_key} is {node_id!r}, not a number") from None
        directory_id = properties.get("directory.id", "")
        try:
            directory_id = directory_id and uuid_text(uuid_of(directory_id))
        except ValueError as error:
            raise MalformedFile(path, f"directory.id: {error}") from error
        return cls(node_id=number, cluster_id=cluster_id, directory_id=directory_id)


def identify(
    files: Filesystem,
    path: str,
    node_id: int,
    cluster_id: str | None,
    new_uuid: Callable[[], bytes],
) -> MetaProperties:
    """Read and check a directory's `meta.properties`, or write it if the directory is new.

    Raises DataDirectoryError for another node's or another cluster's directory.
    """
    properties_path = f"{path}/{META_PROPERTIES}"
    try:
        data = files.read_bytes(properties_path)
    except FileNotFoundError:
        if files.exists(f"{path}/{METADATA_LOG}"):
            raise DataDirectoryError(
                f"{properties_path} is missing, but {METADATA_LOG} is there: restore the file, "
                f"or use an empty directory"
            ) from None
        identity = MetaProperties(
            node_id=node_id,
            cluster_id=cluster_id or uuid_text(new_uuid()),
            directory_id=new_directory_id(new_uuid),
        )
        files.write_atomic(properties_path, identity.encode())
        return identity
    try:
        identity = MetaProperties.decode(data, properties_path)
    except MalformedFile as error:
        raise DataDirectoryError(str(error)) from error
    if identity.node_id != node_id:
        raise DataDirectoryError(
            f"{properties_path} says node.id={identity.node_id}, but node.id={node_id} "
            f"is configured"
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"{properties_path} says cluster.id={identity.cluster_id}, but "
            f"cluster.id={cluster_id} is configured"
        )
    if not identity.directory_id:
        identity.directory_id = new_directory_id(new_uuid)
        files.write_atomic(properties_path, identity.encode())
    return identity


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id of a partition. Raises MalformedFile."""
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.strip():
            continue
        key, colon, value = line.partition(":")
        if not colon or not value[:1].isspace():
            raise MalformedFile(path, f"line {line!r} is not `key: value`")
        fields[key.strip()] = value.strip()
    version = fields.get("version", "")
    if not version.isascii() or not version.isdigit():
        raise MalformedFile(path, f"version is {version!r}, wanted a number")
    try:
        topic_id = uuid_of(fields.get("topic_id", ""))
    except ValueError as error:
        raise MalformedFile(path, f"topic_id: {error}") from error
    if topic_id == ZERO_UUID:
        raise MalformedFile(path, "topic_id is zero")
    return topic_id
