"""The file of an audit's rules: what is read from it, and the one line that a mistake gets."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from pipeline import cli
from pipeline.errors import WrongUse
from pipeline.rules.rules import CHECKS, Rule, read_rules
from tests.support.broker_process import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

ALL = """\
[[rule]]
check = "required"
field = "customer.id"

[[rule]]
name = "amounts"
check = "range"
field = "amount"
min = 0
topics = "orders.*"

[[rule]]
check = "values"
field = "state"
values = ["new", 7, true]

[[rule]]
check = "json"

[[rule]]
check = "unique"
key = true

[[rule]]
check = "unique"
field = "id"

[[rule]]
check = "gap"
seconds = 90.5
per = "topic"
"""


def of_text(folder: Path, text: str) -> tuple[Rule, ...]:
    file = folder / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return read_rules(str(file))


def test_each_table_is_a_rule_with_a_name(tmp_path: Path) -> None:
    assert of_text(tmp_path, ALL) == (
        Rule("required", "required customer.id", field="customer.id"),
        Rule("range", "amounts", topics="orders.*", field="amount", least=0.0),
        Rule("values", "values state", field="state", values=("new", "7", "true")),
        Rule("json", "json"),
        Rule("unique", "unique key", key=True),
        Rule("unique", "unique id", field="id"),
        Rule("gap", "gap of topic", longest_ms=90_500, per="topic"),
    )


def test_the_page_has_a_file_that_is_read_every_check_and_commands_that_are_taken(
    tmp_path: Path,
) -> None:
    page = (CHECKOUT / "docs" / "rules.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(of_text(tmp_path, example)) == 5
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)[1:] == list(CHECKS)
    for command in re.findall(r"^triglot pipeline (.+)$", page, re.MULTILINE):
        assert cli._parsed(shlex.split(command)) is not None


def test_a_rule_is_for_the_topics_whose_whole_name_matches() -> None:
    rule = Rule("json", "json", topics="orders|pay.*")
    assert [rule.is_of(topic) for topic in ("orders", "orders-2", "pay", "repay")] == [
        *(True, False),
        *(True, False),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "rules.toml has 0 rules, wanted are 1 to 200"),
        ("rule = 1", "wanted a table [[rule]] for each rule, in double brackets"),
        ("[rule]\ncheck = 'json'", "wanted a table [[rule]] for each rule, in double brackets"),
        ("[[rules]]\ncheck = 'json'", "unknown key 'rules': rules are tables [[rule]]"),
        ("[[rule]", "rules.toml is no TOML: "),
        ("[[rule]]\nfield = 'a'", "rule 1: no check: known are required, range, values, json"),
        ("[[rule]]\ncheck = 'requird'", "there is no check 'requird': did you mean required?"),
        ("[[rule]]\ncheck = 'zzz'", "there is no check 'zzz': known are required, range,"),
        ("[[rule]]\ncheck = 3", "check is 3, wanted is a text in quotes"),
        (
            "[[rule]]\ncheck = 'json'\n[[rule]]\ncheck = 'required'\nfeild = 'a'",
            "rule 2: check required does not know 'feild': did you mean field?",
        ),
        ("[[rule]]\ncheck = 'required'", "check required wants a field"),
        ("[[rule]]\ncheck = 'required'\nfield = 'a..b'", "no field can be 'a..b'"),
        ("[[rule]]\ncheck = 'required'\nfield = 'a[0]'", "no field can be 'a[0]'"),
        ("[[rule]]\ncheck = 'unique'\nfield = 'a'\nkey = true", "check unique wants a field"),
        ("[[rule]]\ncheck = 'unique'\nkey = 'id'", "key is 'id', wanted key = true, or a field"),
        ("[[rule]]\ncheck = 'range'\nfield = 'a'", "a range wants min, max or both"),
        ("[[rule]]\ncheck = 'range'\nfield = 'a'\nmin = '1'", "min is '1', wanted is a number"),
        ("[[rule]]\ncheck = 'range'\nfield = 'a'\nmin = nan", "min is nan, wanted is a number"),
        ("[[rule]]\ncheck = 'range'\nfield = 'a'\nmin = true", "min is True, wanted is a number"),
        ("[[rule]]\ncheck = 'range'\nfield = 'a'\nmin = 2\nmax = 1", "no number is from 2 to 1"),
        ("[[rule]]\ncheck = 'values'\nfield = 'a'\nvalues = 'x'", "values wants a list of strings"),
        ("[[rule]]\ncheck = 'values'\nfield = 'a'\nvalues = [1.5]", "values wants a list of"),
        ("[[rule]]\ncheck = 'gap'", "a gap wants the seconds that it may last"),
        ("[[rule]]\ncheck = 'gap'\nseconds = 0", "a gap wants the seconds that it may last"),
        (
            "[[rule]]\ncheck = 'gap'\nseconds = 1\nper = 'topics'",
            "there is no per 'topics': did you mean topic?",
        ),
        (
            "[[rule]]\ncheck = 'json'\n[[rule]]\ncheck = 'json'\ntopics = 'a'",
            "rule 2: there is a rule 'json': give it a name",
        ),
        ("[[rule]]\ncheck = 'json'\ntopics = '('", "topics is '(', no regular expression: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_rule(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(WrongUse) as told:
        of_text(tmp_path, text)
    assert line in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_not_there_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="No such file"):
        read_rules(str(tmp_path / "absent.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(WrongUse, match=r"bytes.toml is no TOML"):
        read_rules(str(tmp_path / "bytes.toml"))


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--archive", "nowhere"], 2, "judged by rules: give --rules FILE"),
        (["--rules", "r.toml", "--against-table", "t", "--path", "d"], 2, "exclude each other"),
        (["--rules", "r.toml", "--path", "d", "--archive", "a"], 2, "--path and --archive exclude"),
        (["--rules", "r.toml"], 2, "audit wants --from HOST:PORT or --path DIR or --archive DIR"),
        (["--rules", "absent.toml", "--path", "d"], 2, "cannot read the rules in absent.toml"),
        (["--path", "d", "--name", "a.b"], 2, "give --archive"),
        (["--rules", "r.toml", "--archive", "nowhere"], 4, "there is no folder nowhere"),
        (["--rules", "r.toml", "--archive", ".", "--topic", "a"], 2, "of an archive all topics"),
    ],
)
def test_what_cannot_be_judged_is_told_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text('[[rule]]\ncheck = "json"\n')
    assert cli.main(["audit", *words]) == code
    told = capsys.readouterr()
    assert line in told.err
    assert told.err.count("\n") == 1
