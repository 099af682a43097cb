"""Faults in front of any broker: a proxy that answers in its place where a fault says so.

server       the proxy, made of its parts
brokers      the brokers of the cluster, each with a port here
connection   one client's connection, and the one to the broker behind it
frames       frames of a stream; headers of requests and of answers
observer     who is told of what passes
answers      addresses and versions in answers, names of topics by their ids
"""
