"""Delta and Iceberg tables: adding files to them, reading them through their logs, upkeep."""
