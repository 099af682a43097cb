"""Figures: what a record costs here, beside a plain C floor and, on demand, Apache Kafka.

`python -m bench` measures; README.md says how and what to expect. The floor and the raw load are
C programs that are compiled when first needed. Nothing here is imported by the broker.
"""
