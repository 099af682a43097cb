"""TLS on the two sides of a proxy in front of brokers: its arguments, and what they ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import ssl

    from broker.faults.proxy.server import Connect, Connection

REFUSED = "a client was refused"


def add_tls_arguments(parser: argparse.ArgumentParser) -> None:
    """How brokers are spoken to, and how clients speak."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="client.properties for the way to the brokers: security.protocol, ssl.*. With SSL or "
        "SASL_SSL that is TLS; logins stay those of the clients",
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="a private key and its certificates in PEM, as `triglot certs` makes them: clients "
        "connect with TLS",
    )


def connect_of(arguments: argparse.Namespace) -> Connect:
    """How to connect to brokers. Raises WrongUse."""
    from tools.arguments import security_of

    security = security_of(arguments)
    if security is None or not security.has_tls:
        return asyncio.open_connection
    from client.tls import Error, failure, new_context
    from protocol.client import written

    context = new_context(security)

    async def connect(host: str, port: int) -> Connection:
        try:
            return await asyncio.open_connection(host, port, ssl=context)
        except (Error, ConnectionResetError, ConnectionAbortedError) as error:
            raise ConnectionError(str(failure(written(host, port), error))) from None

    return connect


def context_of(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """The TLS that clients speak; None for none. Raises WrongUse."""
    if arguments.certificate is None:
        return None
    import ssl

    from broker import logs
    from broker.network.tls import why_failed
    from client.errors import WrongUse
    from client.security import ClientSecurity
    from client.tls import Disk
    from config.keystores import KeystoreError, read_private_key
    from config.tls_context import load_key

    class Told(ssl.SSLObject):
        """Tells why a handshake has failed, about which asyncio is silent."""

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                logs.warn_once_a_minute(REFUSED, why_failed(error), "")
                raise

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = Told
    stores = ClientSecurity(ssl_keystore_location=arguments.certificate)
    try:
        load_key(context, read_private_key(Disk(), stores))
    except KeystoreError as error:
        raise WrongUse(f"--certificate {error}") from None
    return context
