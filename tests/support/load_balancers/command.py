# SPDX-License-Identifier: Apache-2.0
"""Programs: one that keeps servers in a file, and the one of ``deploy/nginx`` before a real nginx.

A script in front of each cuts its answers, and refuses changes.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

from tests.support import ROOT
from tests.support.load_balancers import SERVERS, Start, TestBalancer, in_folder
from tests.support.programs import free_port

PROGRAM = ROOT / "deploy/nginx/edgetune-nginx"
_IN_FRONT = """#!/bin/sh
# share of the answer in percent, and whether changes are refused
read share denies < {folder}/mode
if [ "$1" != servers ] && [ "$denies" = yes ]; then echo "read only" >&2; exit 3; fi
answer=$({command} "$@") || exit $?
if [ "$denies" = yes ]; then answer=$(echo "$answer" | sed 's/"refuses": ""/"refuses": "no"/'); fi
printf %s "$answer" | head -c $(( ${{#answer}} * share / 100 ))
"""
_STATES = """
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
states = json.loads(file.read_text())
do, *rest = sys.argv[2:]
if do == "servers":
    rows = [dict(own, name=name, up=True) for name, own in states.items()]
    print(json.dumps({"servers": rows, "refuses": ""}))
else:
    name, word = (rest + [""])[:2]
    if do == "weigh":
        states[name]["weight"] = int(word)
    elif word not in ("", "out", "off"):
        sys.exit("there is no " + word)
    else:
        states[name]["withdrawn"] = {"withdraw": "out", "isolate": "off"}.get(do, word)
    file.write_text(json.dumps(states))
"""
_NGINX = """
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
worker_shutdown_timeout 2s;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream edges {{
        include {folder}/servers.conf;
    }}
    server {{
        listen unix:{folder}/clients;
        location / {{ proxy_pass http://edges; proxy_next_upstream off; }}
    }}
{servers}
}}
"""


class _InFront(TestBalancer):
    """Its program is a script in front of a command."""

    def __init__(self, folder: Path, command: str) -> None:
        self.folder = folder
        self._share, self._denies = 100, "no"
        self._program = folder / "program"
        self._program.write_text(_IN_FRONT.format(folder=folder, command=command))
        self._program.chmod(0o755)
        self.fields = {"program": str(self._program)}
        self._set()

    def cut_answers(self, share: float) -> None:
        self._share = int(100 * share)
        self._set()

    def deny_changes(self) -> None:
        self._denies = "yes"
        self._set()

    def go_away(self) -> None:
        self._program.unlink(missing_ok=True)

    def _set(self) -> None:
        (self.folder / "mode").write_text(f"{self._share} {self._denies}\n")

    @abstractmethod
    def sends_to(self, server: str) -> bool: ...


class Kept(_InFront):
    """Servers in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "states.json"
        states = {name: {"withdrawn": "", "sessions": 0, "weight": 100} for name in SERVERS}
        self._file.write_text(json.dumps(states))
        (folder / "states.py").write_text(_STATES)
        super().__init__(folder, f"{sys.executable} -IS {folder}/states.py {self._file}")

    def sends_to(self, server: str) -> bool:
        return not json.loads(self._file.read_text())[server]["withdrawn"]

    def withdraw_by_hand(self, server: str) -> None:
        self._change(server, withdrawn="out")

    def open_session(self, server: str) -> None:
        self._change(server, sessions=1)

    def end_sessions(self) -> None:
        for server in SERVERS:
            self._change(server, sessions=0)

    def _change(self, server: str, **fields: object) -> None:
        states = json.loads(self._file.read_text())
        states[server].update(fields)
        self._file.write_text(json.dumps(states))


class Nginx(_InFront):
    """A real nginx, whose servers answer their names."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        nginx = f"{shutil.which('nginx')} -c {folder}/nginx.conf"
        self._own = [
            sys.executable,
            "-IS",
            str(PROGRAM),
            f"--file={folder}/servers.conf",
            f"--nginx={nginx}",
            f"--pid={folder}/nginx.pid",
        ]
        self._servers = folder / "servers.conf"
        super().__init__(folder, " ".join(f"'{word}'" for word in self._own))
        self._ports = dict(zip(SERVERS, ports))

    def sends_to(self, server: str) -> bool:
        """Whether one of as many requests as there are servers, and some more, comes there."""
        return server in {self._request() for _ in range(3 * len(SERVERS))}

    def withdraw_by_hand(self, server: str) -> None:
        subprocess.run([*self._own, "withdraw", server], check=True)

    def open_session(self, server: str) -> None:
        """nginx tells no sessions."""

    def starve(self, server: str) -> Callable[[], None]:
        """It becomes a backup of the others."""
        subprocess.run([*self._own, "withdraw", server], check=True)
        text = self._servers.read_text()
        self._servers.write_text(re.sub(rf"down;  # {server}", f"down backup;  # {server}", text))
        subprocess.run([*self._own, "restore", server], check=True)
        return lambda: None

    def end_sessions(self) -> None: ...

    def _request(self) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(f"{self.folder}/clients")
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while part := client.recv(4096):
                answer += part
        return answer.rpartition(b"\r\n\r\n")[2].decode()


@contextmanager
def running_nginx(folder: Path) -> Iterator[Nginx]:
    """A nginx in the foreground; its servers are four more of its own."""
    ports = [free_port() for _ in SERVERS]
    servers = "".join(
        f'    server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{name}"; }} }}\n'
        for name, port in zip(SERVERS, ports)
    )
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, servers=servers))
    lines = [f"server 127.0.0.1:{port};  # {name}\n" for name, port in zip(SERVERS, ports)]
    (folder / "servers.conf").write_text("".join(lines))
    command = ["nginx", "-c", f"{folder}/nginx.conf", "-g", "daemon off;"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(ports[-1])
            yield Nginx(folder, ports)
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_for(port: int) -> None:
    ends = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60):
                return
        except OSError:
            assert time.monotonic() < ends
            time.sleep(0.02)


LOAD_BALANCERS: dict[str, Start] = {"script": in_folder(lambda folder, _: Kept(folder))}
if shutil.which("nginx"):
    LOAD_BALANCERS["real"] = in_folder(lambda own, stack: stack.enter_context(running_nginx(own)))
