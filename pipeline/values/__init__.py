"""Keys and values as columns: Avro and JSON, decoded by Spark's own functions, and Protobuf."""
