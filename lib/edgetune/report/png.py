# SPDX-License-Identifier: Apache-2.0
"""A page as a PNG, drawn by a Chromium where the configuration names one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

SECONDS = 20.0
"""The longest that a browser may take."""
_SIZE = "1000,620"
_PNG = b"\x89PNG\r\n\x1a\n"
_FLAGS = (
    *("--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", f"--window-size={_SIZE}"),
)


def png_of(html: str, program: str) -> bytes:
    """The picture of a page; nothing if there is no such program, or it fails or takes too long.

    The page is our own and runs no script. The browser gets neither our environment nor a home.
    """
    found = shutil.which(program) if program else None
    if found is None:
        return b""
    folder = tempfile.mkdtemp(prefix="edgetune-")
    try:
        return _drawn(found, html, Path(folder))
    except OSError:
        return b""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drawn(program: str, html: str, folder: Path) -> bytes:
    page, drawn = folder / "page.html", folder / "page.png"
    page.write_text(html, encoding="utf-8")
    # Chromium refuses its sandbox to root.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    _run([program, *flags, f"--screenshot={drawn}", page.as_uri()], str(folder))
    image = drawn.read_bytes() if drawn.is_file() else b""
    return image if image.startswith(_PNG) else b""


def _run(command: list[str], home: str) -> None:
    """Run it in a session of its own, and end all of that: a browser has many processes."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home}
    quiet = subprocess.DEVNULL
    with suppress(OSError, subprocess.SubprocessError):
        browser = subprocess.Popen(
            command,
            env=environment,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
        try:
            browser.wait(SECONDS)
        finally:
            with suppress(OSError):
                os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
