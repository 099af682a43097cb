"""Sockets and what goes over them: listening, connections, sending, dispatch to the handlers."""
