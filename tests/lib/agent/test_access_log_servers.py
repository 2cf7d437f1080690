# SPDX-License-Identifier: Apache-2.0
"""What real servers wrote, and a log that real logrotate takes away from a real nginx."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from edgetune.agent.access_log import AccessLog
from edgetune.agent.host import Host
from edgetune.agent.log_format import LogFormat
from tests.support import ROOT
from tests.support.programs import ended, free_port, started
from tests.support.waiting import wait_until

RECORDED = ROOT / "tests/fixtures/access_logs"
SYSTEM = "/usr/sbin:/sbin:/usr/bin:/bin"
NGINX, LOGROTATE = (shutil.which(name, path=SYSTEM) for name in ("nginx", "logrotate"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nginx", {"http_responses": 13, "http_4xx": 3, "http_broken": 1, "cache_hits": 1}),
        ("haproxy", {"http_responses": 13, "http_4xx": 4, "http_5xx": 1, "http_broken": 2}),
        ("varnish", {"http_responses": 9, "http_4xx": 3, "cache_hits": 2, "first_byte_ms": 9}),
        ("trafficserver", {"http_responses": 6, "http_4xx": 1, "http_broken": 1}),
    ],
)
def test_each_line_of_a_real_server_is_read(name: str, told: dict[str, int]) -> None:
    lines = (RECORDED / f"{name}.log").read_bytes()
    found = LogFormat(name).counts(lines)
    assert found["log_unread_lines"] == 0 and found["request_ms"] == lines.count(b"\n")
    assert {key: found[key] for key in told} == told


class Server:
    """nginx as the page has it, one client that asks it all the time, and looks at its log."""

    def __init__(self, root: Path) -> None:
        (root / "var/lib").mkdir(parents=True)
        self.root, self.log = root, root / "log/access.log"
        self.log.parent.mkdir()
        page = (ROOT / "docs/how-to/access-logs.md").read_text()
        written = re.findall(r"^(log_format timed .*?;)$", page, re.DOTALL | re.MULTILINE)[0]
        port = free_port()
        config = root / "nginx.conf"
        config.write_text(
            f"daemon off; user root; pid {root}/pid; error_log {root}/errors;\n"
            f"events {{}}\nhttp {{ {written}\naccess_log {self.log} timed;\n"
            f'server {{ listen 127.0.0.1:{port}; return 200 "x"; }} }}\n'
        )
        self.url = f"http://127.0.0.1:{port}/"
        assert NGINX
        command = [NGINX, "-e", f"{root}/errors", "-c", str(config)]
        self.process = started(root / "out", command, self.url)
        self.asked, self.ends = itertools.count(1), threading.Event()
        self.many = 0
        self.client = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        with requests.Session() as session:
            while not self.ends.is_set():
                session.get(self.url, timeout=10)
                self.many = next(self.asked)

    def lines(self) -> int:
        """Those of all logs: what is packed while nginx still writes is lost to all."""
        found = 0
        for own in self.log.parent.iterdir():
            text = own.read_bytes()
            found += (gzip.decompress(text) if own.suffix == ".gz" else text).count(b"\n")
        return found

    def look(self) -> dict[str, int]:
        return AccessLog(Host(str(self.root)), "/log/access.log", "nginx").look()[0]

    def rotate(self, how: str) -> None:
        config = self.root / "logrotate.conf"
        reopen = f"postrotate\nkill -USR1 $(cat {self.root}/pid)\nendscript"
        config.write_text(f"{self.log} {{\nrotate 9\n{how}\n{reopen}\n}}\n")
        config.chmod(0o644)
        assert LOGROTATE
        command = [LOGROTATE, "--force", "--state", f"{self.root}/state", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        self.ends.set()
        self.client.join()
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    made = Server(root)
    try:
        yield made
    finally:
        ended(made.process)


@pytest.mark.processes
@pytest.mark.skipif(not (NGINX and LOGROTATE), reason="needs nginx and logrotate")
@pytest.mark.parametrize(
    "how", ["delaycompress\ncompress", "compress", "dateext\ndateformat -%s\ncompress"]
)
def test_no_request_is_lost_or_counted_twice_while_a_log_is_rotated(
    how: str, tmp_path: Path
) -> None:
    with serving(tmp_path) as server:
        wait_until(lambda: server.lines() == 1, "the log of the first request")
        server.look()
        server.client.start()
        for _ in range(3):
            time.sleep(0.3)
            server.look()
            time.sleep(0.3)
            server.rotate(how)
            # It opens the new log when it comes to that.
            time.sleep(0.5)
        # Twice between two looks.
        for _ in range(2):
            time.sleep(1.1)
            server.rotate(how)
        server.close()
        found = server.look()
        assert found["http_responses"] == server.lines() - 1 > 0.9 * server.many > 100
        assert found["log_unread_lines"] == 0
