"""The rows that rules are for, as a data frame of Spark's: of topics, or of an archive.

Of a record whose value is bytes the fields are those of the JSON in it, read by Spark's variants;
of an archive with values as columns they are columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from config.errors import nearest_of
from pipeline.archiving.spark_files import spark_files
from pipeline.errors import WrongUse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.tables.table import Catalog

_JSON = "_json"


class Rows(NamedTuple):
    """A data frame, and what its columns are called."""

    frame: DataFrame
    prefix: str
    """Of Kafka's columns: empty, or `_` beside those of a value."""

    @classmethod
    def of_records(cls, frame: DataFrame) -> Rows:
        """Of records with the columns of Spark's Kafka connector."""
        from pyspark.sql import functions as F

        return cls(frame.withColumn(_JSON, F.try_parse_json(F.col("value").cast("string"))), "")

    @classmethod
    def of_archive(cls, spark: SparkSession, where: str, catalog: Catalog | None) -> Rows:
        """Of an archive of records, or with values as columns. Raises what `spark_files` does."""
        from pyspark.sql import functions as F

        found = spark_files(where, catalog)
        frame: DataFrame | None = None
        for value, paths in found.paths.items():
            # Folders' names are not for Spark to guess types of.
            read = spark.read.options(recursiveFileLookup=True, mergeSchema=True).parquet(*paths)
            if found.apart is not None:
                read = read.withColumn(found.apart, F.lit(value))
            frame = read if frame is None else frame.unionByName(read, allowMissingColumns=True)
        assert frame is not None
        return cls(frame, "_") if found.shape == "values" else cls.of_records(frame)

    @property
    def are_json(self) -> bool:
        """Whether fields are looked for in the JSON of a value."""
        return not self.prefix

    def kafkas(self, name: str) -> Column:
        """One of Kafka's columns: key, topic, partition, offset, timestamp."""
        from pyspark.sql import functions as F

        return F.col(self.prefix + name)

    @property
    def has_value(self) -> Column:
        """Whether the record has a value: a tombstone has no fields."""
        from pyspark.sql import functions as F

        if self.are_json:
            return F.col("value").isNotNull()
        return ~F.col("_tombstone") if "_tombstone" in self.frame.columns else F.lit(True)

    @property
    def is_json(self) -> Column:
        """Whether the value is JSON."""
        from pyspark.sql import functions as F

        return F.col(_JSON).isNotNull() if self.are_json else F.lit(True)

    @property
    def value_bytes(self) -> Column:
        """The size of the value; null where it is in columns."""
        from pyspark.sql import functions as F

        return F.octet_length("value") if self.are_json else F.lit(None).cast("int")

    def text(self, field: str) -> Column:
        """A field as JSON has it, a string without its quotes; null where it is null or not there.

        Raises WrongUse for a column that is not there.
        """
        return self._of_type(field, "string")

    def number(self, field: str) -> Column:
        """A field as a number; null where it is none."""
        return self._of_type(field, "double")

    def _of_type(self, field: str, kind: str) -> Column:
        from pyspark.sql import functions as F

        if self.are_json:
            path = "$" + "".join(f"['{name}']" for name in field.split("."))
            return F.try_variant_get(_JSON, path, kind)
        self._check_column(field)
        return F.col(".".join(f"`{name}`" for name in field.split("."))).try_cast(kind)

    def _check_column(self, field: str) -> None:
        """Raises WrongUse."""
        known = _names(self.frame)
        if field not in known:
            near = nearest_of(field, known)
            raise WrongUse(
                f"the archive has no column '{field}': "
                + (f"did you mean '{near}'?" if near else f"known are {', '.join(known)}")
            )


def _names(frame: DataFrame) -> list[str]:
    """The columns, and those within columns, as a rule writes them."""
    found: list[str] = []

    def add(prefix: str, schema: object) -> None:
        for field in getattr(schema, "fields", ()):
            found.append(prefix + field.name)
            add(f"{prefix}{field.name}.", field.dataType)

    add("", frame.schema)
    return found
