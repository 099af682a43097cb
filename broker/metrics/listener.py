"""The port of the metrics: requests of HTTP/1.0, with credentials and TLS if they are set.

/metrics         the broker's own numbers, in the format of Prometheus or, if asked, in OpenMetrics
/client-metrics  what clients have pushed (KIP-714)
/clients         the clients that were seen, and how they would fare with releases of Kafka
/topics          what goes in and out of each topic, and how much there is
/segments        with ?topic=NAME the segments of a topic
/groups          how far each group is behind; with ?group=ID one, by partition
/healthz         whether the broker runs: its loop answers
/readyz          whether it serves everybody: its groups are loaded, its disk takes records

The last two need no credentials: they say what a connection to the broker says, too.
"""

from __future__ import annotations

from base64 import b64encode
from hmac import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from broker import logs
from broker.http_exchange import REQUEST_WITHIN_S, HttpExchange, field
from broker.metrics.families import families
from broker.metrics.health import unready
from broker.metrics.text import OPEN_METRICS, PROMETHEUS, page
from broker.network.secured import LOOK_EVERY_S, is_loopback
from broker.slicing import Slicer
from config.broker_network import METRICS

if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl
    from collections.abc import Callable, Iterator

    from broker.http_exchange import HttpRequest
    from broker.metrics.families import Sources
    from broker.network.tls import Tls
    from config.broker import BrokerSettings
    from storage.filesystem import Filesystem

FIGURES = ("/topics", "/groups", "/segments")
PAGES = ("/metrics", "/client-metrics", "/clients", *FIGURES, "/healthz", "/readyz")
JSON = "application/json"
SLICE_S, PAUSE_S = 0.001, 0.001
"""A page of thousands of rows is made in slices of the loop."""


class Credentials:
    """What a request has to have in its field Authorization: either, if both are set; nothing, if
    none is. `basic` is `user:password`."""

    def __init__(self, basic: str | None, bearer: str | None) -> None:
        self._wanted: list[tuple[bytes, bytes]] = []
        if basic:
            self._wanted.append((b"Basic", b64encode(basic.encode())))
        if bearer:
            self._wanted.append((b"Bearer", bearer.encode()))

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def admit(self, head: bytes) -> bool:
        """Whether this head of a request has them."""
        if not self._wanted:
            return True
        scheme, _, given = (field(head, b"authorization") or b"").partition(b" ")
        return any(
            wanted.lower() == scheme.lower() and compare_digest(given.strip(), credentials)
            for wanted, credentials in self._wanted
        )

    def challenges(self) -> str:
        """The fields that tell a client what is wanted, each with its line end."""
        schemes = [scheme.decode() for scheme, _ in self._wanted]
        return "".join(f'WWW-Authenticate: {one} realm="triglot"\r\n' for one in schemes)


class MetricsListener:
    """The open port. Belongs to the loop."""

    def __init__(self, sources: Sources, credentials: Credentials, tls: Tls | None = None) -> None:
        self.credentials = credentials
        self.scrapes: set[HttpExchange] = set()
        self._sources = sources
        self._tls = tls
        self._server: asyncio.Server
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> None:
        """Raises OSError."""
        await self._open(host=host, port=port)

    async def open_on(self, one: socket.socket) -> None:
        """Serve a socket that listens, which stays that of who made it."""
        await self._open(sock=one.dup())

    async def _open(self, **where: Any) -> None:
        context = None
        if self._tls is not None:
            context = self._tls.context
            context.sni_callback = self._take_newest
            self._look(self._tls)
        self._server = await self._sources.loop.create_server(
            lambda: HttpExchange(self._sources.loop, self.scrapes, self._answer),
            ssl=context,
            ssl_handshake_timeout=REQUEST_WITHIN_S if context else None,
            **where,
        )

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, scrape: HttpExchange, request: HttpRequest) -> None:
        if request.method not in ("GET", "HEAD"):
            scrape.send("405 Method Not Allowed", "only GET is served\n")
        elif request.path == "/healthz":
            scrape.send("200 OK", "the broker runs\n")
        elif request.path == "/readyz":
            reasons = unready(self._sources)
            status = "503 Service Unavailable" if reasons else "200 OK"
            scrape.send(status, "".join(f"{one}\n" for one in reasons or ["ready"]))
        elif not self.credentials.admit(request.head):
            reason = "the credentials are missing or wrong\n"
            scrape.send("401 Unauthorized", reason, fields=self.credentials.challenges())
        elif request.path == "/metrics":
            self._answer_with_metrics(scrape, request)
        elif request.path == "/client-metrics":
            self._answer_with_client_metrics(scrape)
        elif request.path == "/clients":
            self._answer_with_clients(scrape)
        elif request.path in FIGURES:
            self._answer_with_figures(scrape, request)
        else:
            scrape.send("404 Not Found", f"there are {', '.join(PAGES)}\n")

    def _look_elsewhere(self, then: Callable[[], None]) -> None:
        """Ask for the groups that other processes coordinate, where there are any, before a page is
        made that tells of groups."""
        elsewhere = self._sources.groups_elsewhere
        if elsewhere is None:
            then()
        else:
            looking = self._sources.loop.create_task(elsewhere.look(self._led_here))
            looking.add_done_callback(lambda _: then())

    def _led_here(self, topic_id: bytes, index: int) -> str | None:
        topic = self._sources.topics.by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            return None
        return None if topic.partitions[index].led_elsewhere else topic.name

    def _answer_with_metrics(self, scrape: HttpExchange, request: HttpRequest) -> None:
        accepted = field(request.head, b"accept") or b""
        open_metrics = b"application/openmetrics-text" in accepted
        text = ""

        def steps() -> Iterator[None]:
            nonlocal text
            sources, process = self._sources, None
            if sources.neighbours is not None:
                process = sources.neighbours.process
            text = yield from page(families(sources), open_metrics=open_metrics, process=process)

        def made() -> None:
            scrape.send("200 OK", text, kind=OPEN_METRICS if open_metrics else PROMETHEUS)

        slicer = Slicer(self._sources.loop, "metrics", slice_s=SLICE_S, pause_s=PAUSE_S)
        self._look_elsewhere(lambda: slicer.run(steps(), made))

    def _answer_with_client_metrics(self, scrape: HttpExchange) -> None:
        """Their page is made on a thread: it may be of thousands of clients."""
        from broker.metadata.client_metrics_page import page as client_metrics_page

        sources = self._sources
        pushes = sources.client_metrics().last_pushes(sources.groups.now_ms())
        sources.readers.run(
            lambda: client_metrics_page(pushes), lambda text: scrape.send("200 OK", text)
        )

    def _answer_with_clients(self, scrape: HttpExchange) -> None:
        """What is to be said of each is worked out on a thread, too."""
        from protocol.client_verdicts import page as clients_page

        readers = self._sources.readers

        def tell(rows: list[dict[str, Any]], forgotten: int) -> None:
            readers.run(
                lambda: clients_page(rows, forgotten),
                lambda text: scrape.send("200 OK", text, kind=JSON),
            )

        self._sources.census.tell(tell)

    def _answer_with_figures(self, scrape: HttpExchange, request: HttpRequest) -> None:
        from broker.metrics.figures import group_figures, lag_figures, topic_figures
        from broker.metrics.segments import segment_figures

        sources, text = self._sources, ""
        of_groups = sources.groups, sources.topics, sources.now_ms, sources.groups_elsewhere
        asked = {name: values[0] for name, values in parse_qs(request.query).items()}
        if request.path == "/topics":
            made = topic_figures(sources.topics, sources.now_ms())
        elif request.path == "/segments":
            topic = sources.topics.by_name.get(asked.get("topic", ""))
            made = segment_figures(topic, sources.now_ms())
        elif "group" in asked:
            made = lag_figures(asked["group"], *of_groups)
        else:
            made = group_figures(*of_groups)

        def steps() -> Iterator[None]:
            nonlocal text
            text = yield from made

        slicer = Slicer(sources.loop, "figures", slice_s=SLICE_S, pause_s=PAUSE_S)

        def run() -> None:
            slicer.run(steps(), lambda: scrape.send("200 OK", text, kind=JSON))

        if request.path == "/groups":
            self._look_elsewhere(run)
        else:
            run()

    def _look(self, tls: Tls) -> None:
        tls.look(self._sources.readers)
        self._timer = self._sources.loop.call_later(LOOK_EVERY_S, self._look, tls)

    def _take_newest(self, connection: ssl.SSLObject, *_: object) -> None:
        """A server keeps the context that it was opened with; each handshake takes that of now."""
        if self._tls is not None:
            connection.context = self._tls.context


async def listen(
    sources: Sources, settings: BrokerSettings, files: Filesystem, *, port: int
) -> MetricsListener:
    """Serve the pages at `metrics.host`. Raises OSError, or KeystoreError for what TLS needs."""
    host = settings.metrics_host
    credentials = Credentials(settings.metrics_basic_credentials, settings.metrics_bearer_token)
    tls, is_certified = None, False
    if settings.metrics_security_protocol == "SSL":
        from broker.network.tls import Tls
        from config.listener_security import ListenerSecurity

        security = ListenerSecurity(settings, METRICS)
        tls, is_certified = Tls(files, METRICS, security), security.ssl_client_auth == "required"
    listener = MetricsListener(sources, credentials, tls)
    await listener.open(host, port)
    scheme = "https" if tls else "http"
    logs.info("metrics are served", url=f"{scheme}://{host}:{listener.port}/metrics")
    if not (is_loopback(host) or credentials or is_certified):
        logs.warning(
            "whoever reaches this port may read the metrics: other machines can, and it asks for "
            "no credentials",
            port=f"{host}:{listener.port}",
        )
    return listener
