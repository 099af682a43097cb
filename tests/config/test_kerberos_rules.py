"""sasl.kerberos.principal.to.local.rules: names by the rules, as Kafka makes them."""

from __future__ import annotations

import pytest

from config.kerberos_rules import parse_kerberos_rules, short_name

OURS = "EXAMPLE.COM"


def name(principal: str, *rules: str) -> str | None:
    return short_name(principal, parse_kerberos_rules(rules), OURS)


@pytest.mark.parametrize(
    ("principal", "rules", "expected"),
    [
        ("alice@EXAMPLE.COM", ["DEFAULT"], "alice"),
        ("kafka/host.example.com@EXAMPLE.COM", ["DEFAULT"], "kafka"),
        ("alice@OTHER.COM", ["DEFAULT"], None),
        ("alice@example.com", ["DEFAULT"], None),
        ("alice@OTHER.COM", ["RULE:[1:$1]"], "alice"),
        ("alice@OTHER.COM", ["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//"], "alice"),
        ("alice@OTHER.COM", ["RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//", "DEFAULT"], None),
        ("App.Prod-123@EXAMPLE.COM", ["RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g/L"], "prod-123"),
        ("Alice@EXAMPLE.COM", ["RULE:[1:$1]/L"], "alice"),
        ("Alice@EXAMPLE.COM", ["RULE:[1:$1](.*)s/l/L/U"], "ALICE"),
        ("banana@EXAMPLE.COM", ["RULE:[1:$1]s/a/o/"], "bonana"),
        ("banana@EXAMPLE.COM", ["RULE:[1:$1]s/a/o/g"], "bonono"),
        ("bob@OTHER.COM", ["DEFAULT", "RULE:[1:$1@$0]s/@OTHER.COM$/-other/"], "bob-other"),
        ("bob@THIRD.COM", ["DEFAULT", "RULE:[1:$1@$0]s/@OTHER.COM$/-other/"], None),
        ("banana@EXAMPLE.COM", ["RULE:[1:$1](b)", "RULE:[1:x-$1]"], "x-banana"),
        ("kafka/h1@EXAMPLE.COM", ["RULE:[1:$1]", "RULE:[2:$1-$2]"], "kafka-h1"),
        ("kafka/h1@EXAMPLE.COM", ["RULE:[2:$1]s/kafka/\\$1/"], "$1"),
        # A name has neither a realm nor a slash; the rules after it are not asked.
        ("alice@EXAMPLE.COM", ["RULE:[1:$1@$0]", "DEFAULT"], None),
        ("kafka/h1@EXAMPLE.COM", ["RULE:[2:$1/$2]", "DEFAULT"], None),
        ("alice@EXAMPLE.COM", ["RULE:[1:$1]s/.*//", "DEFAULT"], None),
        ("alice@EXAMPLE.COM", [], None),
        # What no broker of Kafka takes for a principal, and what only looks like another.
        ("a/b/c@EXAMPLE.COM", ["DEFAULT"], None),
        ("alice", ["DEFAULT"], None),
        ("alice\\@EXAMPLE.COM@OTHER.COM", ["DEFAULT"], None),
        ("admin\\/x@EXAMPLE.COM", ["DEFAULT"], None),
        ("admin/\\@EXAMPLE.COM", ["DEFAULT"], None),
        ("@EXAMPLE.COM", ["DEFAULT"], None),
        ("alice@EXAMPLE.COM\n", ["DEFAULT"], None),
    ],
)
def test_the_first_rule_that_gives_a_name_holds(
    principal: str, rules: list[str], expected: str | None
) -> None:
    assert name(principal, *rules) == expected


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("default", "DEFAULT or RULE"),
        ("RULE:[1:$1", "DEFAULT or RULE"),
        ("RULE:[:$1]", "DEFAULT or RULE"),
        ("RULE:[1:$1](a)s/b/", "DEFAULT or RULE"),
        ("RULE:[1:$1]x", "DEFAULT or RULE"),
        ("RULE:[1:$2]", r"\$0 to \$1 in the format"),
        ("RULE:[1:$]", r"\$0 to \$1 in the format"),
        ("RULE:[1:$1](*)", "a regular expression"),
        ("RULE:[1:$1]s/[/x/", "a regular expression"),
        ("RULE:[1:$1]s/(a)/$2/", r"\$0 to \$1 in what takes the place"),
    ],
)
def test_a_rule_that_could_name_nobody_is_refused(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_kerberos_rules([rule])
