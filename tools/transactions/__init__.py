"""`triglot transactions`: questions about transactions to a running broker, ours or Apache Kafka's.

Nothing here knows how a broker keeps them. All of it is blocking, one request at a time.
"""
