"""One file per API, named as its messages: a decoded request in, an answer or a pending one out.

A handler is a plain function of (request, context). It sees no sockets and no headers. An error of
one partition is a value in the answer; an error of the whole request is raised as KafkaError, and
the dispatcher puts its code where that API has a place for it.
"""
