"""SASL: who a client is, by the mechanisms of Kafka. Pure machines: tokens in, tokens and verdicts
out."""
