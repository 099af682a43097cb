"""What is wanted of keys and values: their formats, and where their schemas are."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import NotInstalled, WrongUse
from pipeline.values.avro import Avro
from pipeline.values.dead_letter_topic import check_topic
from pipeline.values.json_values import Json
from pipeline.values.protobuf import Protobuf
from pipeline.values.registry import Registry, properties

if TYPE_CHECKING:
    from pipeline.reading.options import SourceOptions
    from pipeline.values.columns import Format

FORMATS: dict[str, type[Format]] = {"avro": Avro, "json": Json, "protobuf": Protobuf}
MOST_BYTES = 4 << 20
"""Of a file with a schema."""
TOPIC = "topic:"
"""Begins a place of dead letters that is no folder."""


@dataclass(frozen=True)
class Decoding:
    """How keys, or values, are decoded."""

    format: str
    """One of FORMATS."""
    schema: str | None = None
    """A file with the schema; without it schemas come from the registry, by the id in each record:
    a zero and four bytes before the payload."""
    message: str | None = None
    """Of Protobuf, the full name of the message that columns are made of; None for the first of the
    schema's file."""

    def opened(self) -> Format:
        """The format. Raises WrongUse for one that is not known."""
        if self.format not in FORMATS:
            raise WrongUse(f"no such format: {self.format!r}; known: {', '.join(FORMATS)}")
        if self.format == "protobuf":
            return Protobuf(self.message)
        if self.message is not None:
            raise WrongUse(f"{self.format} has no messages: leave {self.message} out")
        return FORMATS[self.format]()

    def text(self) -> str | None:
        """The schema in the file; None without one. Raises WrongUse, and what the format does."""
        if self.schema is None:
            return None
        try:
            with Path(self.schema).open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise WrongUse(
                    f"{self.schema} is over {MOST_BYTES >> 20} MiB, too much for a schema"
                )
            return self.opened().text_of(Path(self.schema), content)
        except (OSError, UnicodeDecodeError) as failure:
            raise WrongUse(f"the schema cannot be read: {failure}") from None


@dataclass(frozen=True)
class Values:
    """What becomes columns, and what is done with records that do not fit."""

    value: Decoding | None = None
    key: Decoding | None = None
    registry: str | None = None
    """The URL of a schema registry with Confluent's API."""
    registry_config: str | None = None
    """A file with properties of the registry's client, for TLS and passwords."""
    dead_letters: str | None = None
    """The place that records go to which do not fit: a folder, local or a URI, or `topic:NAME`, on
    the brokers that are read from. None: such a record ends the run."""

    @property
    def parts(self) -> dict[str, Decoding]:
        """What is decoded, by `key` and `value`."""
        given = {"key": self.key, "value": self.value}
        return {name: decoding for name, decoding in given.items() if decoding is not None}

    @staticmethod
    def check_use(*, shape: str, to: str) -> None:
        """Raises WrongUse for an archive that cannot have columns of values."""
        if "{topic}" in to:
            raise WrongUse(
                "columns of values are of one folder: archive each topic by a run of its own"
            )
        if shape != "records":
            raise WrongUse("--shape is of records as they are: leave it out beside --value, --key")

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic that dead letters go to, if it is no folder."""
        if self.dead_letters is None or not self.dead_letters.startswith(TOPIC):
            return None
        return self.dead_letters.removeprefix(TOPIC)

    def check(self, source: SourceOptions) -> None:
        """Everything that can be known before a JVM starts: schemas in files are read, the registry
        is asked for a sign of life, and the brokers of `source` for the topic of dead letters.
        Raises WrongUse, NotInstalled, Refused, Unreachable."""
        if not self.parts:
            raise WrongUse("name the format of the values (--value), or of the keys (--key)")
        if importlib.util.find_spec("pandas") is None:
            raise NotInstalled(
                "Spark wants pandas for columns of values: pip install 'triglot[pipeline-values]'"
            )
        for name, decoding in self.parts.items():
            opened = decoding.opened()
            if decoding.schema is None and self.registry is None:
                raise WrongUse(
                    f"where is the schema of the {name}? In a file (--{name}-schema FILE), or in a "
                    "registry (--registry URL) that has it by the id in each record"
                )
            text = decoding.text()
            # Spark reads its DDL, which needs the JVM.
            if text is not None and (decoding.format != "json" or text.lstrip().startswith("{")):
                opened.merged(None, [text], str(decoding.schema))
        registry = self.open_registry()
        if registry is not None:
            registry.check()
        if self.dead_letter_topic is not None:
            check_topic(self.dead_letter_topic, source)

    def open_registry(self) -> Registry | None:
        """None without one. Raises WrongUse, NotInstalled."""
        if self.registry is None:
            if self.registry_config is not None:
                raise WrongUse("--registry-config is of a registry: give its --registry URL")
            return None
        config = {} if self.registry_config is None else properties(self.registry_config)
        return Registry(self.registry, config)
