"""Parquet files of an archive, how they become part of it, and tables made of them."""
