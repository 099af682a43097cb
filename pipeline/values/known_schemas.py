"""The schemas of keys, or of values, as far as they have been met: in the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.errors import Refused
from pipeline.values.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.values.avro_columns import AvroDecoder
    from pipeline.values.columns import Format
    from pipeline.values.protobuf_messages import ProtobufDecoder
    from pipeline.values.registry import Registry

MOST_SCHEMAS = 200
"""Ids of writers' schemas: Spark's plan has each of them."""
MOST_MISSING = 1000
"""Ids that the registry has not got. A topic with more has something else in it."""
FILE_ID = 0
"""The id of a schema from a file."""


class KnownSchemas:
    """Writers' schemas by id, and the reader's schema that takes them all."""

    def __init__(
        self, name: str, format_: Format, *, text: str | None, registry: Registry | None
    ) -> None:
        """With a `text` it is the only schema, and there are no ids."""
        self.name = name
        self.format = format_
        self.reader: str | None = None
        self.writers: dict[int, tuple[str, ...]] = {}
        self._text = text
        self._registry = registry
        self._missing: set[int] = set()

    @property
    def payload(self) -> Payload:
        """What tasks are to know."""
        return Payload(
            self.name,
            self._text is None,
            self.reader is not None and self.decoder is None,
            self.format.mark,
            frozenset((*self.writers, *self._missing)),
            frozenset(self._missing),
        )

    @property
    def decoder(self) -> AvroDecoder | ProtobufDecoder | None:
        """What decodes it in a task; None where Spark does, and before a schema has been met."""
        if self.reader is None:
            return None
        header = self._text is None
        return self.format.decoder(self.writers, self.reader, header=header)

    def restore(self, noted: Mapping[str, Any] | None, *, missing: bool) -> None:
        """Go on from what `noted` gave: with the ids that were `missing`, if the micro-batch that
        met them is to be done again as it was. Raises Refused, Unreachable."""
        if noted is not None:
            self.reader = noted["reader"]
            if missing:
                self._missing.update(noted["missing"])
        if self._text is not None:
            self._add(FILE_ID, (self._text,), f"the schema of the {self.name}")
        elif noted is not None:
            self.learn(noted["ids"])

    def learn(self, ids: Iterable[int]) -> None:
        """Ask for schemas, each once. Raises Refused for one that does not go with those before,
        and what the registry raises."""
        assert self._registry is not None
        for id_ in sorted(set(ids) - self.writers.keys() - self._missing):
            found = self._registry.schema(id_)
            if found is None:
                self._missing.add(id_)
                if len(self._missing) > MOST_MISSING:
                    raise Refused(
                        f"over {MOST_MISSING:,} schema ids of the {self.name} are not in the "
                        "registry: it is another one, or the topic has no such ids"
                    )
                continue
            if found.kind != self.format.kind:
                raise Refused(
                    f"schema {id_} is {found.kind}, and the {self.name} was to be "
                    f"{self.format.kind}: give its format"
                )
            what = f"schema {id_}"
            self._add(id_, self.format.texts_of(found, what), what)
            if len(self.writers) > MOST_SCHEMAS:
                raise Refused(
                    f"the {self.name} has over {MOST_SCHEMAS} schema ids, more than Spark can be "
                    "given at once: archive the topic piece by piece, to several folders"
                )

    def noted(self) -> dict[str, Any]:
        """As `restore` takes it."""
        return {
            "reader": self.reader,
            "ids": sorted(self.writers),
            "missing": sorted(self._missing),
        }

    def _add(self, id_: int, texts: tuple[str, ...], what: str) -> None:
        self.reader = self.format.merged(self.reader, texts, what)
        self.writers[id_] = texts
