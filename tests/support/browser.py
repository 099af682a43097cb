"""A headless Chromium, Debian's, which Playwright drives: fetched, and not installed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.fetched import NotAvailable, debian_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

PACKAGE = "chromium-headless-shell"
PROGRAM = "usr/lib/chromium/chromium-headless-shell"


@contextmanager
def browser() -> Iterator[Browser]:
    """Raises `NotAvailable`."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise NotAvailable(str(error)) from None
    folder = debian_program(PACKAGE)
    # One of them keeps its own in a folder below, which it looks for where it would be installed.
    found = [*folder.glob("usr/lib/*-linux-gnu"), *folder.glob("usr/lib/*-linux-gnu/pulseaudio")]
    libraries = ":".join(map(str, found))
    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(
                executable_path=folder / PROGRAM,
                # It would want rights that a container does not give.
                args=["--no-sandbox", "--disable-gpu"],
                env={**os.environ, "LD_LIBRARY_PATH": libraries},
            )
        except Error as error:
            raise NotAvailable(f"{PACKAGE} does not start: {str(error)[-1000:]}") from None
        with running:
            yield running
