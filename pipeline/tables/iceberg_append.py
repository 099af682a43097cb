"""Files for an Iceberg table by what is told of them: `add_files` of PyIceberg opens each one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.tables.added import AddedFile


def append_files(
    change: Any, io: Any, files: Sequence[tuple[str, AddedFile]], noted: Mapping[str, str]
) -> None:
    """Append files of one schema, each with its URI, in a `change` (PyIceberg's Transaction), as a
    snapshot with these properties. Raises what PyIceberg raises."""
    from pyiceberg.table import TableProperties

    metadata = change.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    snapshot = change.update_snapshot(snapshot_properties=dict(noted))
    merging = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
    with snapshot.merge_append() if merging else snapshot.fast_append() as append:
        for data_file in _data_files(change.table_metadata, io, files):
            append.append_data_file(data_file)


def _data_files(metadata: Any, io: Any, files: Sequence[tuple[str, AddedFile]]) -> Iterator[Any]:
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_files_to_data_files,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    # The first one is opened, and compared with the table's columns.
    yield from parquet_files_to_data_files(io, metadata, iter([files[0][0]]))
    schema, spec = metadata.schema(), metadata.spec()
    plan = compute_statistics_plan(schema, metadata.properties)
    ids = parquet_path_to_id_mapping(schema)
    for uri, file in files[1:]:
        found = data_file_statistics_from_parquet_metadata(file.footer, plan, ids)
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri,
            file_format=FileFormat.PARQUET,
            partition=found.partition(spec, schema),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **found.to_serialized_dict(),
        )
