# SPDX-License-Identifier: Apache-2.0
"""The web server that reads a file of prefixes: the table, and what it sets for whom."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.hosts.agent.appliers.base import Configuration, Wanted
from edgetune.hosts.agent.appliers.file import HEAD, text_of
from edgetune.vocabulary.prefixes import number_of
from lab.prefix_server import LARGE, Server, main, read_table


def test_it_reads_what_the_agent_writes() -> None:
    wanted = [Wanted("192.0.2.0/24", 0), Wanted("2001:db8:0:100::/56", 0)]
    text = text_of(Configuration("lab1", 7, "bbr", 600, wanted, "file", "sha256:0"))
    assert read_table(text) == {number_of(own.prefix): "bbr" for own in wanted}
    assert read_table(HEAD) == {} == read_table("")


@pytest.mark.parametrize(
    "line",
    ["192.0.2.0/24 bbr", "192.0.2.0/24", "192.0.2.1/24 bbr;", "192.0.2.0/25 bbr;", "x bbr;"],
)
def test_a_line_that_is_wrong_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prefixes"
    file.write_text(f"{HEAD}{line}\n")
    assert main(["check", str(file)]) == 1
    assert f"{file}: line 2: " in capsys.readouterr().err
    file.write_text(HEAD)
    assert main(["check", str(file)]) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    file = tmp_path / "prefixes"
    file.write_text("127.0.7.0/24 reno;\n")
    own = Server(file, "127.0.0.1", 0)
    thread = threading.Thread(target=own.serve_forever, args=(0.01,))
    thread.start()
    yield own
    own.shutdown()
    thread.join()
    own.server_close()


def algorithm(server: Server, client: str, size: int) -> str:
    """What the server's side of a connection has after a response of so many bytes."""
    port = server.server_address[1]
    with socket.create_connection(("127.0.0.1", port), 10, (client, 0)) as peer:
        peer.sendall(f"GET /{size} HTTP/1.1\r\nHost: e\r\n\r\n".encode())
        left, head = size, b""
        while b"\r\n\r\n" not in head:
            head += peer.recv(1)
        while left:
            left -= len(peer.recv(left))
        own = peer.getsockname()[1]
        said = subprocess.run(
            ["ss", "-tinH", "sport", "=", f":{port}", "and", "dport", "=", f":{own}"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    return said.splitlines()[1].split()[0]


@pytest.mark.processes
def test_large_responses_to_a_prefix_of_the_file_have_its_congestion_control(
    server: Server, tmp_path: Path
) -> None:
    usual = algorithm(server, "127.0.8.1", 2 * LARGE)
    if usual == "reno":
        pytest.skip("this machine has no other congestion control than the one of the test")
    assert algorithm(server, "127.0.7.1", 2 * LARGE) == "reno"
    assert algorithm(server, "127.0.7.1", LARGE) == usual
    (tmp_path / "prefixes").write_text("127.0.8.0/24 reno;\n")
    server.reload()
    assert algorithm(server, "127.0.7.1", 2 * LARGE) == usual
    assert algorithm(server, "127.0.8.1", 2 * LARGE) == "reno"
    (tmp_path / "prefixes").write_text("bad\n")
    with pytest.raises(ValueError, match="line 1"):
        server.reload()
    assert algorithm(server, "127.0.8.1", 2 * LARGE) == "reno"
