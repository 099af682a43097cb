"""The console as an application: routes, logins, errors. The pages themselves are in `pages`."""

from __future__ import annotations

import secrets
import sys
import threading
import traceback
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from broker.clock import monotonic_s, now_ms
from client.errors import Failure, NoSuchTopic, Refused
from protocol.errors import ErrorCode
from tools.console.broker_port import NoAnswer
from tools.console.downloads import DOWNLOADS_MAX, Download, InTurn
from tools.console.figures import LAGS_EVERY, LOOK_EVERY_S, Figures, Lags
from tools.console.guard import SAFE_METHODS, Guard, token_of
from tools.console.logins import Clusters, Logins
from tools.console.pages.clients import clients
from tools.console.pages.follow import follow, followed
from tools.console.pages.group import group
from tools.console.pages.groups import groups
from tools.console.pages.overview import overview
from tools.console.pages.produce import form, produce
from tools.console.pages.records import records, shown, value
from tools.console.pages.reset import preview, reset
from tools.console.pages.settings import settings
from tools.console.pages.storage import storage
from tools.console.pages.topic import topic
from tools.console.pages.topics import topics
from tools.console.rendering import FOLDER, Templates
from tools.console.streaming import EventStream, Seen, Streams
from tools.console.visible import VisibleTopics
from tools.console.visit import Bytes, Moved, NotAllowed, NotThere, Shown, Visit, WrongQuestion
from tools.errors import NotDone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request

    from tools.cluster import Cluster
    from tools.console.broker_port import Broker
    from tools.console.logins import Door, Login
    from tools.console.pages.follow import Followed
    from tools.console.visit import Page

THREADS = 4
"""Pages that are made at a time; others wait."""
FORM_BYTES_MAX = 2 << 20
FORM_FIELDS_MAX = 100


class Place(NamedTuple):
    """A page, its address, and what changes something there, if anything does."""

    path: str
    page: Page
    change: Page | None = None


PLACES = (
    Place("/clients", clients),
    Place("/group", group),
    Place("/group/reset", preview, reset),
    Place("/groups", groups),
    Place("/overview", overview),
    Place("/settings", settings),
    Place("/topics", topics),
    Place("/topics/{topic}", topic),
    Place("/topics/{topic}/follow", follow),
    Place("/topics/{topic}/produce", form, produce),
    Place("/topics/{topic}/records", records),
    Place("/topics/{topic}/storage", storage),
)
"""A new page is a line here; what is in the navigation stands in `templates/base.html`."""
VALUE = Place("/topics/{topic}/partitions/{partition}/offsets/{offset}/value", value)


class Application:
    """What requests are answered with."""

    def __init__(self, door: Door, broker: Broker, *, may_write: bool) -> None:
        self._broker = broker
        self._clusters = Clusters(door, monotonic_s, lambda: broker.away)
        self._door = door
        self._figures = Figures(lambda: broker.ask("/topics"), monotonic_s)
        self._lags = Lags(lambda: broker.ask("/groups"), monotonic_s)
        self._key = secrets.token_bytes(32)
        self._logins = Logins(door, monotonic_s)
        self._may_write = may_write
        self._streams = Streams()
        self._templates = Templates()
        self._visible = VisibleTopics(monotonic_s)
        self._turn = threading.Lock()
        self._threads: anyio.CapacityLimiter
        self._downloads: anyio.Semaphore

    @asynccontextmanager
    async def life(self, _: Starlette) -> AsyncIterator[None]:
        """Look at the figures as long as the application runs."""
        self._threads = anyio.CapacityLimiter(THREADS)
        self._downloads = anyio.Semaphore(DOWNLOADS_MAX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            yield
            tasks.cancel_scope.cancel()

    async def _watch(self) -> None:
        for number in count():
            try:
                await anyio.to_thread.run_sync(self._figures.look, limiter=self._threads)
                if number % LAGS_EVERY == 0:
                    await anyio.to_thread.run_sync(self._lags.look, limiter=self._threads)
            except NoAnswer as error:
                print(f"figures: {error}", file=sys.stderr, flush=True)
            await anyio.sleep(LOOK_EVERY_S)

    def endpoint(self, place: Place) -> Callable[[Request], Awaitable[Response]]:
        """What answers the requests for a page."""

        async def answer(request: Request) -> Response:
            page = place.page if request.method in SAFE_METHODS else place.change
            assert page is not None
            secret = self._secret(request)
            login = self._logins.of(secret)
            if login is None:
                return RedirectResponse(f"/login?{urlencode({'to': _local(request)})}", 303)
            fields: Mapping[str, str] = request.query_params
            if request.method not in SAFE_METHODS:
                try:
                    fields = await self._form(request, secret)
                except WrongQuestion as error:
                    return self._problem(request, login, 403, str(error))
            return await anyio.to_thread.run_sync(
                self._answered, request, page, login, fields, limiter=self._threads
            )

        return answer

    def _answered(
        self, request: Request, page: Page, login: Login, query: Mapping[str, str]
    ) -> Response:
        """Made on a thread: it waits for the broker."""
        try:
            with self._clusters.cluster(login.security) as cluster:
                told = page(self._visit(request, login, cluster, query))
        except (NoSuchTopic, NotThere) as error:
            return self._problem(request, login, 404, str(error))
        except WrongQuestion as error:
            return self._problem(request, login, 400, str(error))
        except NotAllowed as error:
            return self._problem(request, login, 403, str(error))
        except Refused as error:
            if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._logins.end(self._secret(request))
                return RedirectResponse("/login", 303)
            return self._problem(request, login, 403, str(error))
        except NotDone as error:
            return self._problem(request, login, 409, str(error))
        except (Failure, NoAnswer) as error:
            return self._problem(request, login, 502, str(error))
        except Exception:
            traceback.print_exc()  # the broker's log has it
            return self._problem(request, login, 500, "a fault of the console: the log has it")
        if isinstance(told, Bytes):
            return Download(told.name, told.content)
        if isinstance(told, Moved):
            return RedirectResponse(told.to, 303)
        return self._page(request, login, told, told.status)

    def _visit(
        self, request: Request, login: Login, cluster: Cluster, query: Mapping[str, str]
    ) -> Visit:
        return Visit(
            cluster,
            partial(self._clusters.client, login.security),
            partial(self._visible.of, login.security, cluster),
            self._figures,
            self._lags,
            self._broker,
            query,
            request.path_params,
            now_ms(),
            self._may_write,
            self._turn,
        )

    # What takes longer

    async def download(self, request: Request) -> Response:
        """The value of a record, when its turn comes: it is held until the browser has it."""
        return InTurn(partial(self.endpoint(VALUE), request), self._downloads)

    async def follow(self, request: Request) -> Response:
        """The events of a page that follows a topic."""
        found: Followed | None = None

        def look() -> Seen:
            nonlocal found
            login = self._logins.of(self._secret(request))
            if login is None:
                return Seen("", 0, "nobody is logged in any more")
            with self._clusters.cluster(login.security) as cluster:
                if found is None:
                    visit = self._visit(request, login, cluster, request.query_params)
                    found = followed(visit)
                told = found.tail.look(cluster)
            rows = self._templates.rows(shown(told.records, found.view), found.topic)
            return Seen(rows if told.records else "", told.skipped, told.over)

        return EventStream(self._streams.events(look, self._threads))

    def _page(
        self, request: Request, login: Login | None, shown: Shown, status: int = 200
    ) -> Response:
        secret = self._secret(request)
        is_new = not secret
        if is_new:
            secret = secrets.token_urlsafe(32)
        text = self._templates.render(
            shown,
            query=request.query_params,
            path=request.url.path,
            user=login.user if login else "",
            away=self._away() if login else [],
            may_write=self._may_write,
            token=token_of(self._key, secret),
        )
        response = HTMLResponse(text, status)
        if is_new:
            self._keep(request, response, secret)
        return response

    def _away(self) -> list[tuple[int, str]]:
        """The number and the address of each process that does not answer."""
        away = self._broker.away
        return [
            (number, address)
            for number, (node_id, address) in enumerate(self._door.brokers.items())
            if node_id in away
        ]

    def _problem(self, request: Request, login: Login | None, status: int, text: str) -> Response:
        return self._page(request, login, Shown("problem.html", {"problem": text}), status)

    async def _form(self, request: Request, secret: str) -> dict[str, str]:
        """The fields of a form of ours. Raises WrongQuestion."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise WrongQuestion(f"a form has at most {FORM_BYTES_MAX >> 20} MiB")
        try:
            fields = dict(
                parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
            )
        except ValueError as error:
            raise WrongQuestion(f"this is no form: {error}") from None
        wanted = token_of(self._key, secret).encode()
        if not secret or not secrets.compare_digest(fields.get("token", "").encode(), wanted):
            raise WrongQuestion("the form is too old: load the page again, and send it once more")
        return fields

    # Logging in

    async def show_login(self, request: Request) -> Response:
        if not self._logins.are_needed:
            return RedirectResponse("/topics", 303)
        return self._login_page(request)

    async def log_in(self, request: Request) -> Response:
        """Take a user and a password, if the broker does."""
        try:
            fields = await self._form(request, self._secret(request))
        except WrongQuestion as error:
            return self._login_page(request, str(error), 403)
        user, mechanism = fields.get("user", ""), fields.get("mechanism", "")
        if mechanism not in self._door.mechanisms or not user:
            return self._login_page(request, "a user and a password are wanted", 400)
        security = self._door.security(user, fields.get("password", ""), mechanism)

        def attempt() -> str:
            try:
                with self._clusters.cluster(security) as cluster:
                    cluster.node_ids()
            except Failure as error:
                return str(error)
            return ""

        why = await anyio.to_thread.run_sync(attempt, limiter=self._threads)
        if why:
            return self._login_page(request, why, 403)
        to = fields.get("to", "")
        is_ours = to.startswith("/") and not to.startswith(("//", "/\\"))
        response = RedirectResponse(to if is_ours else "/topics", 303)
        self._keep(request, response, self._logins.begin(user, security))
        return response

    async def log_out(self, request: Request) -> Response:
        secret = self._secret(request)
        try:
            await self._form(request, secret)
        except WrongQuestion as error:
            return self._problem(request, None, 403, str(error))
        self._logins.end(secret)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_cookie(request))
        return response

    def _login_page(self, request: Request, why: str = "", status: int = 200) -> Response:
        facts = {
            "mechanisms": self._door.mechanisms,
            "to": request.query_params.get("to", ""),
            "problem": why,
        }
        return self._page(request, None, Shown("login.html", facts), status)

    def _secret(self, request: Request) -> str:
        return request.cookies.get(_cookie(request), "")

    def _keep(self, request: Request, response: Response, secret: str) -> None:
        response.set_cookie(
            _cookie(request),
            secret,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def make_app(door: Door, *, broker: Broker, names: Iterable[str], may_write: bool) -> Starlette:
    """The application for the broker behind a door. `names` as in `Guard`."""
    application = Application(door, broker, may_write=may_write)
    routes = [
        Route(
            place.path,
            application.endpoint(place),
            methods=["GET"] if place.change is None else ["GET", "POST"],
        )
        for place in PLACES
    ]

    async def home(_: Request) -> Response:
        return RedirectResponse("/topics", 303)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/login", application.show_login, methods=["GET"]),
            Route("/login", application.log_in, methods=["POST"]),
            Route("/logout", application.log_out, methods=["POST"]),
            Route("/topics/{topic}/follow/events", application.follow, methods=["GET"]),
            Route(VALUE.path, application.download, methods=["GET"]),
            *routes,
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(Guard, names=names)],
        lifespan=application.life,
    )


def _cookie(request: Request) -> str:
    """Its name has the port: consoles of several brokers on a machine share the host."""
    return f"triglot_console_{request.url.port or 80}"


def _local(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return request.url.path + query
