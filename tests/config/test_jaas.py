"""Login modules of JAAS as Kafka writes them."""

from __future__ import annotations

import pytest

from config.jaas import PLAIN_LOGIN_MODULE, LoginModule, parse_login_module, plain_users


def test_a_login_module_is_a_class_with_options() -> None:
    text = f'{PLAIN_LOGIN_MODULE} required username="broker" serviceName=kafka useKeyTab=true;'

    assert parse_login_module(text) == LoginModule(
        PLAIN_LOGIN_MODULE, {"username": "broker", "serviceName": "kafka", "useKeyTab": "true"}
    )


def test_users_of_plain_are_the_options_that_say_so() -> None:
    text = f"""{PLAIN_LOGIN_MODULE} required // who may come
        username="broker" password="its own"
        user_alice="with \\"quotes\\" and = and ;" /* of the team */ user_bob=word ;"""

    assert plain_users(text) == {"alice": 'with "quotes" and = and ;', "bob": "word"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN_LOGIN_MODULE,
        f"{PLAIN_LOGIN_MODULE} required",
        f'{PLAIN_LOGIN_MODULE} required user_alice="tell-nobody"',
        f'{PLAIN_LOGIN_MODULE} required user_alice="tell-nobody;',
        f'{PLAIN_LOGIN_MODULE} required user_alice "tell-nobody";',
        f'{PLAIN_LOGIN_MODULE} user_alice="tell-nobody";',
        f'{PLAIN_LOGIN_MODULE} required user_alice="tell-nobody"; Other required a="tell-nobody";',
        'org.example.Other required user_alice="tell-nobody";',
    ],
)
def test_what_is_none_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"JAAS|PlainLoginModule for the mechanism PLAIN") as error:
        plain_users(text)
    assert "tell-nobody" not in str(error.value)
