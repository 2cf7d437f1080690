# SPDX-License-Identifier: Apache-2.0
"""A file of prefixes for a web server: what a host has to say of it, and what goes wrong there."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgetune.agent.appliers import Configuration as Told
from edgetune.agent.appliers import Wanted, applier
from edgetune.agent.appliers.file import MOST_SECONDS
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed
from edgetune.base.documents.congestion import Treated
from tests.support.agent_root import until
from tests.support.appliers import CHOSEN, V4_CLIENTS, V6_CLIENTS
from tests.support.appliers.file import FILE, FileDouble, hosts
from tests.support.programs import free_port

pytestmark = pytest.mark.processes


@pytest.fixture
def web(tmp_path: Path) -> Iterator[FileDouble]:
    with hosts(tmp_path) as double:
        yield double


def test_an_agent_that_is_killed_after_the_refusal_leaves_no_file_that_was_refused(
    web: FileDouble,
) -> None:
    """A web server that is started anew would not start with it."""
    web.tell()
    before = web.file
    web.root.write("stub/check", "grep -q 'number 2' etc/web/prefixes.conf && exit 3\n")
    host = Host(str(web.root.path))
    told = Told("lab1", 2, "bbr", 600, [Wanted(V4_CLIENTS, 0)], "file", "sha256:0")
    with host.lock():
        with pytest.raises(Failed, match="web check: exit status 3"):
            applier(host, "file").set(told)
        assert web.file == before and len(web.treated) == 2


def test_a_command_that_hangs_is_ended_with_all_that_it_started(web: FileDouble) -> None:
    web.write_setup({"seconds": 1})
    mark = f"{3600 + os.getpid()}"
    web.root.write("stub/check", f"sleep {mark} & sleep {mark}\n")
    began = time.monotonic()
    said = web.refusal()
    assert "web check: has not ended after 1 s" in said
    assert time.monotonic() - began < 3 * MOST_SECONDS
    assert until(lambda: not running(f"sleep {mark}"), 10)


def running(command: str) -> list[str]:
    found = subprocess.run(["ps", "-eo", "args"], check=True, stdout=subprocess.PIPE, text=True)
    return [line for line in found.stdout.splitlines() if line.strip() == command]


NGINX = """\
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1; user root;
events {{}}
http {{
    access_log off;
    geo $edgetune_cc {{ default usual; include {file}; }}
    server {{ listen 127.0.0.1:{port}; return 200 "$edgetune_cc"; }}
}}
"""


@contextmanager
def nginx(web: FileDouble, folder: Path) -> Iterator[int]:
    """A real nginx whose configuration includes the file; its port on loopback."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx")
    port = free_port()
    own = folder / "nginx.conf"
    own.write_text(NGINX.format(folder=folder, file=web.root.path / FILE, port=port))
    command = f"{program} -p {folder} -c {own}"
    script = f'#!/bin/sh\nexec {command} "$@"\n'
    web.root.write("usr/local/sbin/nginx", script).chmod(0o755)
    web.write_setup({"check": ["nginx", "-t", "-q"], "reload": ["nginx", "-s", "reload"]})
    process = subprocess.Popen([*command.split()], stderr=subprocess.DEVNULL)
    try:
        assert until(lambda: (folder / "pid").exists(), 20)
        yield port
    finally:
        process.terminate()
        process.wait()


def asked(port: int, client: str) -> str:
    """What nginx would do for a client; "" while it reloads."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5, (client, 0)) as peer:
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            parts = [*iter(lambda: peer.recv(4096), b"")]
    except OSError:
        return ""
    return b"".join(parts).decode().rpartition("\r\n")[2]


def test_a_real_nginx_takes_the_file_and_refuses_a_bad_one(web: FileDouble, tmp_path: Path) -> None:
    with nginx(web, tmp_path) as port:
        assert asked(port, "127.0.7.1") == "usual"
        own = web.configuration([Treated("127.0.7.0/24"), Treated(V6_CLIENTS)])
        web.tell(own)
        assert until(lambda: asked(port, "127.0.7.1") == "bbr", 20)
        assert asked(port, "127.0.8.1") == "usual"
        before = web.file
        # Something else of its configuration is broken, so nginx takes no file at all.
        config = tmp_path / "nginx.conf"
        good = config.read_text()
        config.write_text(good.replace("access_log off", "acces_log off"))
        said = web.refusal(web.configuration(CHOSEN[:1], 2))
        assert re.search(r'nginx -t -q: .*\[emerg\].* unknown directive "acces_log"', said)
        assert web.file == before and asked(port, "127.0.7.1") == "bbr"
        config.write_text(good)
        web.tell(web.configuration(CHOSEN[:1], 3))
        assert until(lambda: asked(port, "127.0.7.1") == "usual", 20)
        web.tell(own | web.configuration([Treated("127.0.7.0/24")], 4))
        assert until(lambda: asked(port, "127.0.7.1") == "bbr", 20)
        web.tell(web.configuration([], 5))
        assert until(lambda: asked(port, "127.0.7.1") == "usual", 20)
