"""The releases of Apache Kafka that tests run, and how each is told what to log.

3.9 is the last that can be moved to from ZooKeeper and logs with log4j; 4 logs with log4j2 and
needs Java 17. All come from Maven at first use; there are no command line tools of 4.4 there, so
those of 4.3 are run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.support import fetched

FOLDER = Path(__file__).parent
VERSION_KEY = "kafka.version"
VERSION = re.compile(f"<{VERSION_KEY}>(.*?)<")

#: `FILE` gets the lines of level WARN and above. Where `OUT` stands, standard output is added.
LOG4J = """\
log4j.rootLogger=INFO, complaintsOUT
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.complaints=org.apache.log4j.FileAppender
log4j.appender.complaints.File=FILE
log4j.appender.complaints.Append=true
log4j.appender.complaints.Threshold=WARN
log4j.appender.complaints.layout=org.apache.log4j.PatternLayout
log4j.appender.complaints.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

LOG4J2 = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
appender.complaints.type = File
appender.complaints.name = complaints
appender.complaints.fileName = FILE
appender.complaints.append = true
appender.complaints.layout.type = PatternLayout
appender.complaints.layout.pattern = [%d] %p %m (%c)%n
appender.complaints.filter.threshold.type = ThresholdFilter
appender.complaints.filter.threshold.level = warn
rootLogger.level = info
rootLogger.appenderRef.complaints.ref = complaintsOUT
"""


class Release(NamedTuple):
    """One release, with the names that differ between them."""

    name: str
    pom: Path
    #: The settings of its logging, and the Java property that names their file.
    logging: str
    #: What makes it log to standard output as well.
    logging_out: str
    logging_property: str
    dump_tool: str
    #: The release where it is not that of the pom.
    newer: str = ""

    @property
    def version(self) -> str:
        """All three numbers of it."""
        if self.newer:
            return self.newer
        found = VERSION.search(self.pom.read_text(encoding="utf-8"))
        assert found is not None
        return found[1]

    @property
    def tools(self) -> Release:
        """The release whose command line tools are run: that of the pom, which has them."""
        return self._replace(newer="")

    def java(
        self, folder: Path, name: str, *, classes: Path | None = None, quiet: bool = False
    ) -> list[str]:
        """The words before the name of a class of this release. Raises `NotAvailable`.

        What it logs as WARN or worse goes to `<name>.log` in the folder, and all that it logs to
        standard output, unless it is to be `quiet`. `classes` is a folder to be searched first.
        """
        jars = fetched.jars(self.pom, properties={VERSION_KEY: self.newer} if self.newer else None)
        complaints = folder.resolve() / f"{name}.log"
        logging = folder.resolve() / f"{name}.log4j.properties"
        out = "" if quiet else self.logging_out
        logging.write_text(self.logging.replace("FILE", str(complaints)).replace("OUT", out))
        command = [fetched.runtime("java"), "-Xmx768m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]
        # What tools print is in the encoding of the environment; the property depends on the JDK.
        command += [f"-D{name}=UTF-8" for name in ("file.encoding", "stdout.encoding")]
        command += [f"-D{self.logging_property}=file:{logging}"]
        first = f"{classes}:" if classes else ""
        return [*command, "-cp", f"{first}{jars}/*"]


KAFKA_3_9 = Release(
    name="3.9",
    pom=FOLDER / "kafka" / "pom.xml",
    logging=LOG4J,
    logging_out=", out",
    logging_property="log4j.configuration",
    dump_tool="kafka.tools.DumpLogSegments",
)
KAFKA_4 = Release(
    name="4",
    pom=FOLDER / "kafka4" / "pom.xml",
    logging=LOG4J2,
    logging_out="\nrootLogger.appenderRef.out.ref = out",
    logging_property="log4j2.configurationFile",
    dump_tool="org.apache.kafka.tools.DumpLogSegments",
)
KAFKA_4_4 = KAFKA_4._replace(name="4.4", newer="4.4.0")
RELEASES = (KAFKA_3_9, KAFKA_4)
