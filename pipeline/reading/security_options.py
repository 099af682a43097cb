"""TLS and SASL of the clusters that `format("triglot")` reads and writes: a file of Kafka's client
properties, and no option of Spark's, whose plans show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import WrongUse

if TYPE_CHECKING:
    from client.security import ClientSecurity


def security_of(file: str | None) -> ClientSecurity | None:
    """What a file of Kafka's client properties says; None without. Raises WrongUse."""
    if file is None:
        return None
    from client.security import read_client_security

    return read_client_security(file)


def asks_for_plaintext(name: str, value: str) -> bool:
    """Whether an option, named in lower case, is that there be neither TLS nor authentication.

    Raises WrongUse for what asks for either.
    """
    if name == "kafka.security.protocol" and value.upper() == "PLAINTEXT":
        return True
    if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl.")):
        # Spark shows options in its plans, and its interface.
        raise WrongUse(
            f"option {name}: write it into a file, without kafka., and name that in the option "
            "commandConfig"
        )
    return False
