"""`triglot groups`: questions to a running broker, ours or Apache Kafka's, by network.

Nothing here knows how a broker keeps its groups. All of it is blocking, one request at a time.
"""
