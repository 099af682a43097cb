"""The arguments of a proxy in front of brokers, and the TLS that they ask for on its two sides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tools.arguments import address, advertised, listened_range

if TYPE_CHECKING:
    import argparse
    import ssl

    from broker.faults.proxy.server import Connect, Connection

REFUSED = "a client was refused"


def add_proxy_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it stands and what it stands in front of, and how it speaks with either side."""
    parser.add_argument(
        "--in-front-of",
        metavar="HOST:PORT",
        type=address,
        required=True,
        help="a broker of the cluster",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT[-LAST]",
        type=listened_range,
        default=("127.0.0.1", 0, 0),
        help="where clients connect; port 0, which is the default, picks a free one. The other "
        "brokers of the cluster get the next ports up to LAST, or free ones, of the same host",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        type=advertised,
        default=("", 0),
        help="by which host clients reach the proxy, and by which port the first one of --listen; "
        "else the host by which a client has come, and the ports themselves",
    )
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


def fault_of_addresses(arguments: argparse.Namespace) -> str:
    """What is wrong with where it stands; "" is nothing."""
    if arguments.advertise[1] and not arguments.listen[1]:
        return "--advertise with a port wants one in --listen, too"
    return ""


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
