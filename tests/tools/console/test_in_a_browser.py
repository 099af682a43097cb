"""The console in a real browser: what a stranger sees, by which keys, and that nothing is run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from client.cluster import Cluster, TopicPartition
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.records.builder import build_batch
from tests.clients.available import end_of_test
from tests.support.broker_process import BrokerProcess
from tests.support.browser import browser as new_browser
from tests.support.caller import Caller
from tests.support.console import ConsoleClient
from tests.support.fetched import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.long

ATTACK = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>"
PAGES = (
    "/topics",
    "/topics?q=nothing-is-called-so",
    "/topics/orders",
    "/topics/orders/records",
    "/topics/orders/records?offset=42",
    "/topics/orders/follow",
    "/topics/orders/produce",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing&to=latest",
    "/clients",
    "/topics/is-not-there",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("browser")
    arguments = ("--console", "127.0.0.1:0", "--console-writable")
    with BrokerProcess(folder, arguments=arguments) as running:
        fill(running)
        yield running
        assert "Traceback" not in running.output()


def fill(broker: BrokerProcess) -> None:
    """Two topics, two groups and two clients, of which one is the answer; and others' attacks."""
    attack = ATTACK.encode()
    with Cluster(broker.bootstrap) as client:
        for topic, count in (("orders", 500), ("returns", 5), ("attacks", 0)):
            client.create_topic(topic, 1)
            records = [(1_700_000_000_000, None, b'{"order": %d}' % at, ()) for at in range(count)]
            if records:
                client.produce(TopicPartition(topic, 0), [build_batch(records)])
        headers = ((ATTACK, attack),)
        attacks = [(0, attack, attack, headers), (0, attack, b'["%b"]' % attack, headers)]
        client.produce(TopicPartition("attacks", 0), [build_batch(attacks)])
        client.commit_offsets("billing", {TopicPartition("orders", 0): 0})
        client.commit_offsets("shipping", {TopicPartition("orders", 0): 500})
        client.commit_offsets(ATTACK, {TopicPartition("attacks", 0): 0})
    for client_id, version in (("till-2013", 0), ("web-shop", 7), (ATTACK[:100], 0)):
        with Caller(broker.host, broker.port, client_id=client_id) as caller:
            caller.call(ListOffsetsRequest(replica_id=-1, topics=[]), version=version)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with new_browser() as running:
            yield running
    except NotAvailable as reason:
        end_of_test("chromium", str(reason))


@pytest.fixture
def context(browser: Browser, broker: BrokerProcess) -> Iterator[BrowserContext]:
    with browser.new_context(base_url=ConsoleClient(broker).url) as opened:
        yield opened


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page that fails its test for whatever a script of somebody else would do."""
    return watched(context)


def watched(context: BrowserContext) -> Page:
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    opened.on("pageerror", lambda error: pytest.fail(str(error)))
    return opened


def rows(page: Page) -> list[str]:
    found: list[str] = page.locator("main tbody tr").all_inner_texts()
    return found


def reload_until(page: Page, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, rows(page)
        page.wait_for_timeout(200)
        page.reload()


def test_a_stranger_is_answered(page: Page, broker: BrokerProcess) -> None:
    page.goto("/")
    # Which topic grows fastest? The first of the first page.
    with Cluster(broker.bootstrap) as client:
        batch = build_batch([(1_700_000_000_000, None, b"x" * 10_000, ())])
        client.produce(TopicPartition("orders", 0), [batch])
    reload_until(page, lambda: rows(page)[0].startswith("orders"))
    # What is in the record at offset 42?
    page.get_by_role("link", name="orders").click()
    page.get_by_role("link", name="Records").click()
    page.get_by_label("Offset", exact=True).fill("42")
    page.get_by_role("button", name="Show").click()
    assert '"order": 42' in page.locator("details[open] pre").last.inner_text()
    # Which group is furthest behind in time?
    page.get_by_role("link", name="Groups", exact=True).click()
    page.locator("tbody tr", has_text="shipping").wait_for()
    behind = [row for row in rows(page) if "img" not in row]
    assert behind[0].startswith("billing")
    # Which clients stop working on Kafka 4.0?
    page.get_by_role("link", name="Clients").click()
    assert "2 of" in page.locator("main strong").first.inner_text()
    assert "fails" in page.locator("tr", has_text="till-2013").inner_text()
    assert "fails" not in page.locator("tr", has_text="web-shop").inner_text()


def test_nothing_that_others_wrote_is_run(page: Page) -> None:
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    for path in (
        "/topics/attacks/records",
        "/topics/attacks/records?view=text&offset=0",
        "/topics/attacks/follow",
        "/groups",
        "/clients",
    ):
        page.goto(path)
        page.wait_for_load_state()
        for details in page.locator("details").all():
            details.evaluate("one => { one.open = true }")
        assert page.locator("main script").count() == 0
        assert page.locator("main img").count() == 0
    assert not blocked, blocked


def test_records_appear_as_they_come_and_are_not_run(page: Page, broker: BrokerProcess) -> None:
    page.goto("/topics/attacks/follow")
    with Cluster(broker.bootstrap) as client:
        for number in range(100):
            value = b"%d " % number + ATTACK.encode()
            client.produce(TopicPartition("attacks", 0), [build_batch([(0, None, value, ())])])
            if page.locator("#state", has_text="have come").count():
                break
            page.wait_for_timeout(100)
    page.locator("tbody tr").first.wait_for()
    assert "onerror" in rows(page)[0]
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Pause").click()
    assert page.locator("#state").inner_text() == "Paused."


def test_pages_ask_nobody_else(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        page.goto(path)
    base = page.url.split("/topics")[0]
    assert len(asked) > len(PAGES)
    assert not [url for url in asked if not url.startswith(base)]


def test_rows_are_reached_and_opened_by_keys(page: Page) -> None:
    page.goto("/topics?sort=name")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("Escape")
    for key, name in (("j", "attacks"), ("j", "orders"), ("ArrowDown", "returns"), ("k", "orders")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.innerText").startswith(name)
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url.endswith("/topics/orders")
    page.goto("/topics/orders/records")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 1
    page.goto("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"


def test_a_filter_looks_in_what_is_shown(page: Page) -> None:
    page.goto("/topics/orders/records?from=start&limit=50")
    assert page.locator("tbody tr:visible").count() == 50
    page.get_by_label("Of these, show those with").fill('"order": 4')
    assert page.locator("tbody tr:visible").count() == 11


def test_a_record_is_written_and_shown(page: Page) -> None:
    page.goto("/topics/returns/produce")
    page.locator("#value").fill('{"written": "here"}')
    page.get_by_role("button", name="Write the record").click()
    assert '"written": "here"' in page.locator("details[open] pre").last.inner_text()


def test_offsets_are_moved_as_shown(page: Page) -> None:
    page.goto("/group?id=shipping")
    page.get_by_role("link", name="Move its offsets").click()
    page.get_by_label("To", exact=True).select_option("offset")
    page.get_by_label("Time, offset or number").fill("450")
    page.get_by_role("button", name="Show what would change").click()
    assert "-50" in rows(page)[0]
    page.get_by_role("button", name="Set as shown").click()
    page.locator("tbody tr", has_text="orders-0").wait_for()
    assert "450" in rows(page)[0].split("\t")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_on_a_phone_in_light_and_dark(
    browser: Browser, broker: BrokerProcess, scheme: str
) -> None:
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}
    with browser.new_context(
        base_url=ConsoleClient(broker).url,
        viewport={"width": 360, "height": 740},
        color_scheme="dark" if scheme == "dark" else "light",
    ) as phone:
        page = watched(phone)
        for path in PAGES:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == grounds[scheme]


NAMELESS = """() => [...document.querySelectorAll(
        'a, button, input, select, textarea, summary, svg, img')]
    .filter((one) => one.type !== 'hidden' && one.alt !== '')
    .filter((one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim()))
    .map((one) => one.outerHTML)"""


def test_everything_that_can_be_reached_has_a_name(page: Page) -> None:
    for path in PAGES:
        page.goto(path)
        assert page.evaluate(NAMELESS) == [], path
        assert page.locator("h1").count() == 1, path
        assert page.locator("main, header, footer").count() == 3
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.title(), path
        for table in page.locator("table.rows").all():
            assert table.locator("caption").count() == 1


def test_pages_work_without_a_script(browser: Browser, broker: BrokerProcess) -> None:
    with browser.new_context(
        base_url=ConsoleClient(broker).url, java_script_enabled=False
    ) as plain:
        page = plain.new_page()
        page.goto("/topics?sort=size")
        page.get_by_role("link", name="orders").click()
        page.get_by_role("link", name="Records").click()
        page.get_by_label("Offset", exact=True).fill("42")
        page.get_by_label("From", exact=True).select_option("offset")
        page.get_by_role("button", name="Show").click()
        assert '"order": 42' in page.locator("details[open] pre").last.inner_text()
