"""ssl.principal.mapping.rules, with the examples of KIP-371 and what people write besides."""

from __future__ import annotations

import pytest

from config.principal_rules import name_of, parse_rules

OF_THE_KIP = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("OU=x,cn=Mixed.Case", "mixed.case"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(subject: str, name: str) -> None:
    assert name_of(subject, parse_rules(OF_THE_KIP)) == name


def test_a_rule_matches_the_whole_subject_or_not_at_all() -> None:
    assert name_of("CN=alice,O=x", parse_rules("RULE:CN=alice/alice/")) is None
    assert name_of("CN=alice", parse_rules("RULE:CN=alice/alice/")) == "alice"


def test_without_a_rule_that_matches_there_is_no_name_and_an_empty_one_is_none() -> None:
    rules = parse_rules("RULE:^CN=(.*)$/$1/")
    assert name_of("O=x", rules) is None
    assert name_of("CN=", rules) is None


def test_slashes_commas_and_references_that_do_not_exist() -> None:
    rules = parse_rules(r"RULE:^CN=(a\/b),O=c$/\$$1$7/U")
    assert name_of("CN=a/b,O=c", rules) == "$A/B$7"


@pytest.mark.parametrize(
    "text", ["RULE:^CN=(.*$/$1/", "RULE:^CN=(.*)$/$1", "RULE:a/b/X", "default", "DEFAULT RULE:a/b/"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"character \d|regular expression"):
        parse_rules(text)
