"""Tokens that are not what the mechanism wants, and some that nearly are not.

Those of SCRAM are of alice; the final ones are made of a good one when they are sent.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from tests.clients.sasl.conversation import scram_final, scram_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.sasl.conversation import Conversation

    Made = Callable[[Conversation], bytes]

PLAIN_TOKENS: dict[str, bytes] = {
    "as herself": b"alice\0alice\0alice-secret",
    "as another": b"bob\0alice\0alice-secret",
    "wrong password": b"\0alice\0wrong",
    "wrong password as another": b"bob\0alice\0wrong",
    "nobody": b"\0nobody\0alice-secret",
    "in capitals": b"\0ALICE\0alice-secret",
    "a space behind": b"\0alice\0alice-secret ",
    "a line feed behind": b"\0alice\0alice-secret\n",
    "a NUL behind": b"\0alice\0alice-secret\0",
    "four parts": b"\0alice\0alice-secret\0more",
    "two parts": b"alice\0alice-secret",
    "one part": b"alice",
    "empty": b"",
    "two NULs": b"\0\0",
    "no user": b"\0\0alice-secret",
    "no password": b"\0alice\0",
    "only an authorization id": b"alice\0\0",
    "not UTF-8": b"\0alice\0\xff\xfe",
    "not UTF-8 in the name": b"\0\xc3\x28\0alice-secret",
    "a surrogate": b"\0alice\0\xed\xa0\x80",
    "letters of others": "\0álïcé\0ключ".encode(),
    "60000 bytes": b"\0alice\0" + b"x" * 60_000,
}

SCRAM_FIRSTS: dict[str, bytes] = {
    "good": b"n,,n=alice,r=abc",
    "could bind a channel": b"y,,n=alice,r=abc",
    "binds a channel": b"p=tls-unique,,n=alice,r=abc",
    "as herself": b"n,a=alice,n=alice,r=abc",
    "as another": b"n,a=bob,n=alice,r=abc",
    "as nobody": b"n,a=,n=alice,r=abc",
    "an extension": b"n,,n=alice,r=abc,x=1",
    "two extensions": b"n,,n=alice,r=abc,x=1,y=2",
    "an extension without a value": b"n,,n=alice,r=abc,x=",
    "an extension without a name": b"n,,n=alice,r=abc,=1",
    "a mandatory extension": b"n,,m=x,n=alice,r=abc",
    "a mandatory extension behind": b"n,,n=alice,r=abc,m=x",
    "no user": b"n,,n=,r=abc",
    "no name": b"n,,r=abc",
    "no nonce": b"n,,n=alice,r=",
    "no part for the nonce": b"n,,n=alice",
    "a comma behind": b"n,,n=alice,r=abc,",
    "a NUL in the nonce": b"n,,n=alice,r=a\0c",
    "a space in the nonce": b"n,,n=alice,r=a c",
    "letters of others in the nonce": "n,,n=alice,r=\u00e4bc".encode(),
    "an escaped comma": b"n,,n=al=2Cice,r=abc",
    "an escaped equals sign": b"n,,n=al=3Dice,r=abc",
    "an escape that is none": b"n,,n=al=2Dice,r=abc",
    "an equals sign": b"n,,n=al=ice,r=abc",
    "nobody": b"n,,n=nobody,r=abc",
    "in capitals": b"n,,n=ALICE,r=abc",
    "letters of others": "n,,n=\u00e4lice,r=abc".encode(),
    "not UTF-8": b"n,,n=\xff\xfe,r=abc",
    "a flag that is none": b"q,,n=alice,r=abc",
    "no flag": b"n=alice,r=abc",
    "names in capitals": b"n,,N=alice,R=abc",
    "parts in another order": b"n,,r=abc,n=alice",
    "empty": b"",
    "noise": b"\x16\x03\x01\0\x01",
    "a token of PLAIN": b"\0alice\0alice-secret",
    "a nonce of 4000 letters": b"n,,n=alice,r=" + b"a" * 4000,
}


def _spoiled(pattern: str, becomes: str) -> Made:
    """The final message with something replaced."""

    def made(conversation: Conversation) -> bytes:
        good = scram_final(conversation).decode()
        spoiled = re.sub(pattern, becomes, good, count=1)
        assert spoiled != good
        return spoiled.encode()

    return made


def _with_proof(change: Callable[[bytes], bytes]) -> Made:
    def made(conversation: Conversation) -> bytes:
        before, proof = scram_final(conversation).split(b",p=")
        return before + b",p=" + base64.b64encode(change(base64.b64decode(proof)))

    return made


SCRAM_FINALS: dict[str, bytes | Made] = {
    "good": scram_final,
    "a bit of the proof": _with_proof(lambda proof: bytes((proof[0] ^ 1,)) + proof[1:]),
    "a proof of zeros": _with_proof(lambda proof: bytes(len(proof))),
    "a short proof": _with_proof(lambda proof: proof[:-1]),
    "a long proof": _with_proof(lambda proof: proof + b"\0"),
    "a proof of no bytes": _spoiled(",p=.*", ",p="),
    "no proof": _spoiled(",p=.*", ""),
    "a proof that is not base64": _spoiled(",p=.", ",p=!"),
    "a proof without padding": _spoiled("=+$", ""),
    "another nonce": _spoiled(",r=", ",r=x"),
    "a part of the nonce": _spoiled(",r=[^,]*", ",r=abc"),
    "no nonce": _spoiled(",r=[^,]*", ""),
    "another header": _spoiled("c=biws", "c=eSws"),
    "a header that is not base64": _spoiled("c=biws", "c=bi!s"),
    "no header": _spoiled("c=biws", "c="),
    "an extension": _spoiled(",p=", ",x=1,p="),
    "an extension behind": _spoiled("$", ",x=1"),
    "a comma behind": _spoiled("$", ","),
    "a line feed behind": _spoiled("$", "\n"),
    "in capitals": _spoiled("c=", "C="),
    "empty": b"",
    "noise": b"\x16\x03\x01\0\x01",
    "not UTF-8": b"\xff\xfe",
    "the first again": scram_first,
}
