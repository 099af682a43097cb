"""An error of Spark becomes the failure that it is about, in one line.

The texts are those of Spark 4.3, shortened where they repeat.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import CorruptData, NotInstalled, OffsetsGone, SparkFailed, exit_code
from pipeline.spark.spark_failures import LONGEST_LINE, telling_line, translated

TASK = """\
An error occurred while calling o63.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times
Traceback (most recent call last):
  File "/srv/pyspark/worker.py", line 3000, in main
    process()
  File "/srv/app/pipeline/columns/decode.py", line 5, in decode
    raise {raised}
{text}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/srv/pyspark/worker.py", line 3000, in main
    process()
{text}

\t... 1 more
"""
UNRESOLVED = """\
:: problems summary ::
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: no.such#thing_2.13;1.0: not found
\t\t::::::::::::::::::::::::::::::::::::::::::::::
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: no.such#thing]
\tat org.apache.spark.deploy.SparkSubmitUtils$.resolveMavenCoordinates(SparkSubmit.scala:1608)
"""
NO_MEMORY = """\
Error occurred during initialization of VM
Could not reserve enough space for 1048574951424KB object heap
"""
NO_SIZE = """\
Invalid maximum heap size: -Xmxfoo
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
WRONG_MASTER = """\
WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must be yarn, spark or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""


class FromSpark(Exception):
    """A stack of its JVM is an attribute of Spark's own."""

    def __init__(self, text: str, stack: str = "") -> None:
        super().__init__(text)
        self._stackTrace = stack


def task(raised: str, message: str) -> str:
    return TASK.format(raised=raised, text=f"{raised}: {message}")


def test_a_failure_of_ours_in_a_task_comes_back_as_itself() -> None:
    text = task("pipeline.errors.OffsetsGone", "orders-0 has no offset 5 any more")
    failure = translated(FromSpark(text), None)
    assert type(failure) is OffsetsGone
    assert str(failure) == "orders-0 has no offset 5 any more"


def test_a_failure_of_the_client_in_a_task_comes_back_with_its_exit_code() -> None:
    text = task("client.errors.CorruptData", "orders-0 offset 5: bad checksum")
    failure = translated(FromSpark(text), None)
    assert type(failure) is CorruptData
    assert str(failure) == "orders-0 offset 5: bad checksum"
    assert exit_code(failure) == 7


def test_a_failure_of_ours_is_found_when_installed_under_another_package() -> None:
    text = task("triglot.client.errors.CorruptData", "orders-0 offset 5: bad checksum")
    assert type(translated(FromSpark("Query terminated", text), None)) is CorruptData


def test_a_failure_of_ours_is_found_in_what_an_exception_came_from() -> None:
    error = FromSpark("Query terminated")
    error.__cause__ = CorruptData("orders-1 offset 7: bad")
    assert str(translated(error, None)) == "orders-1 offset 7: bad"


def test_a_module_that_an_executor_lacks_is_named() -> None:
    text = task("ModuleNotFoundError", "No module named 'pyarrow'")
    failure = translated(FromSpark(text), None)
    assert type(failure) is NotInstalled
    assert "No module named 'pyarrow': install triglot[pipeline] for the Python" in str(failure)


def test_anything_else_is_told_by_its_innermost_line_and_the_log_is_named() -> None:
    log = Path("/tmp/spark.log")
    failure = translated(FromSpark(task("ZeroDivisionError", "division by zero")), log)
    assert type(failure) is SparkFailed
    assert str(failure) == (
        "Spark failed: ZeroDivisionError: division by zero (Spark's own words: /tmp/spark.log)"
    )


def test_the_cause_in_the_jvm_tells_more_than_what_it_caused() -> None:
    text = (
        "org.apache.spark.SparkException: Exception thrown in awaitResult:\n\tat a.b.C(D.scala)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/sun.nio.X.y(Z)\n"
    )
    assert str(translated(FromSpark(text), None)) == (
        "Spark failed: IOException: No space left on device; make room on the disk"
    )


def test_spark_s_own_words_are_told_where_there_are_no_others() -> None:
    text = "pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] xx"
    assert telling_line(text) == "[USER_RAISED_EXCEPTION] xx"
    text += "\npy4j.protocol.Py4JJavaError: An error occurred while calling o1.collect."
    assert telling_line(text) == "[USER_RAISED_EXCEPTION] xx"
    text = "a.PythonException: error inside foreachBatch: Traceback (most recent call last):\n"
    assert telling_line(text + "  File x\nAssertionError\n SQLSTATE: 38000") == "AssertionError"
    assert telling_line("first\nsecond") == "first"
    assert telling_line("") == "no reason given"
    assert len(telling_line("ValueError: " + "x" * 9999)) == LONGEST_LINE


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (UNRESOLVED, "cannot find no.such:thing_2.13:1.0 in any repository that is configured"),
        (NO_MEMORY, "Could not reserve enough space for 1048574951424KB object heap"),
        (NO_SIZE, "Invalid maximum heap size: -Xmxfoo"),
        (WRONG_MASTER, "Master must be yarn, spark or local"),
        ("", "no reason given"),
    ],
)
def test_a_jvm_that_does_not_start_is_told_from_its_log(
    tmp_path: Path, log: str, line: str
) -> None:
    path = tmp_path / "spark.log"
    path.write_text(log)
    failure = translated(FromSpark("[JAVA_GATEWAY_EXITED] Java gateway process exited"), path)
    assert str(failure) == f"Spark did not start: {line} (Spark's own words: {path})"


def test_an_exception_that_cannot_say_what_it_is_is_still_one_line() -> None:
    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionError("the JVM is gone")

    assert str(translated(Gone(), None)) == "Spark failed: Gone"
