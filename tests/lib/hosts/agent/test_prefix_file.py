# SPDX-License-Identifier: Apache-2.0
"""A file of prefixes for a web server: what a host has to say of it, and what goes wrong there."""

from __future__ import annotations

import json
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
import yaml

from edgetune.documents.congestion import Treated
from edgetune.hosts.agent.appliers import APPLIERS
from edgetune.hosts.agent.appliers.base import Configuration as Told
from edgetune.hosts.agent.appliers.base import Wanted
from edgetune.hosts.agent.appliers.file import HEAD, MOST_SECONDS
from edgetune.hosts.agent.congestion import Congestion
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Failed
from edgetune.vocabulary.places import CONGESTION, PREFIX_FILE_TOLD
from tests.support.agent_root import until
from tests.support.appliers import CHOSEN, V4_CLIENTS, V6_CLIENTS
from tests.support.appliers.file import FILE, SETUP, FileDouble, hosts, treated_in

pytestmark = pytest.mark.processes


@pytest.fixture
def web(tmp_path: Path) -> Iterator[FileDouble]:
    with hosts(tmp_path) as double:
        yield double


def test_the_file_is_what_nginx_includes(web: FileDouble) -> None:
    told = web.tell()
    assert web.file == (
        f"{HEAD}# number 1, {told['checksum']}\n{V4_CLIENTS} bbr;\n{V6_CLIENTS} bbr;\n"
    )
    assert web.calls == ["check", "reload"]
    own = web.root.path / FILE
    assert own.stat().st_mode & 0o777 == 0o644
    own.chmod(0o640)
    web.tell(web.configuration(CHOSEN[:1], 2))
    assert "number 2" in web.file
    assert own.stat().st_mode & 0o777 == 0o640, "it keeps the mode that its people gave it"


def test_a_renewal_does_not_reload_the_web_server(web: FileDouble) -> None:
    for _ in range(3):
        web.tell()
    assert Congestion(Host(str(web.root.path))).keep() > 0
    assert web.calls == ["check", "reload"]


@pytest.mark.parametrize("command", ["check", "reload"])
def test_a_file_that_the_web_server_does_not_take_is_not_left_there(
    web: FileDouble, command: str
) -> None:
    web.tell()
    before = web.file
    web.root.write(f"stub/{command}", "grep -q 'number 2' etc/web/prefixes.conf && exit 3\n")
    said = web.refusal(web.configuration(CHOSEN[:1], 2))
    assert said == f"failed: None: web {command}: exit status 3"
    assert web.file == before and web.calls[-2:] == ["check", "reload"]
    assert len(web.treated) == 2
    told = json.loads(web.root.read(CONGESTION[1:]))["configuration"]
    assert told["number"] == 1


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
            APPLIERS["file"](host).set(told)
        assert web.file == before and len(web.treated) == 2


def test_a_web_server_that_takes_nothing_any_more_is_told_again_later(web: FileDouble) -> None:
    """Its configuration is broken elsewhere, or it does not run."""
    web.tell()
    web.root.write("stub/down", "")
    said = web.refusal(web.configuration(CHOSEN[:1], 2))
    assert said == (
        "failed: None: web reload: exit status 7; nor did what stood before come back: "
        "web reload: exit status 7"
    )
    assert web.root.read(FILE).count("bbr") == 2
    # Nobody knows what the web server has now, though the file is the right one.
    with Host(str(web.root.path)).lock():
        (web.root.path / "stub/down").unlink()
        calls = len(web.calls)
    web.tell()
    assert web.calls[calls:] == ["check", "reload"]


@pytest.mark.parametrize("was_told", [True, False])
def test_what_cannot_be_taken_back_is_not_forgotten(web: FileDouble, was_told: bool) -> None:
    if was_told:
        web.tell()
    web.root.write("stub/down", "")
    said = web.refusal(web.configuration([], 2) if was_told else None)
    assert "web reload: exit status 7" in said and web.root.exists(CONGESTION[1:])
    assert web.file == HEAD and bool(web.treated) is was_told
    (web.root.path / "stub/down").unlink()
    assert until(lambda: not web.treated and not web.root.exists(CONGESTION[1:]), 20)
    assert web.file == HEAD


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


@pytest.mark.parametrize("settled", [True, False])
def test_an_agent_that_was_killed_before_the_reload_is_made_up_for(
    web: FileDouble, settled: bool
) -> None:
    """The file is there, and the web server was not told of it."""
    web.tell()
    told = json.loads(web.root.read(PREFIX_FILE_TOLD[1:]))
    assert told["settled"] is True
    change = {"settled": settled, "text": told["text"] if settled else HEAD}
    # Its keeper looks at any moment, and would do the same.
    with Host(str(web.root.path)).lock():
        web.root.write(PREFIX_FILE_TOLD[1:], json.dumps({**told, **change}))
        web.root.write("stub/loaded", "")
        calls = len(web.calls)
    web.tell()
    assert len(web.calls) - calls == (0 if settled else 2)
    assert bool(web.treated) is not settled


def test_a_file_that_is_moved_is_cleared_where_it_was(web: FileDouble) -> None:
    web.tell()
    web.write_setup({"file": "/etc/web/moved.conf"})
    assert until(lambda: web.root.exists("etc/web/moved.conf"), 20)
    web.tell()
    assert web.file == HEAD and len(treated_in(web.root.read("etc/web/moved.conf"))) == 2
    web.tell(web.configuration([], 2))
    assert web.root.read("etc/web/moved.conf") == HEAD


def test_a_file_that_somebody_took_over_is_left_to_them(web: FileDouble) -> None:
    web.tell()
    host = Host(str(web.root.path))
    with host.lock():
        web.be_somebody_elses()
        theirs = web.file
        APPLIERS["file"](host).flush()
        assert web.file == theirs and web.treated == {"192.0.2.0/24": "reno"}


def test_a_file_that_somebody_removed_is_there_again_for_the_web_server(web: FileDouble) -> None:
    web.root.write("stub/check", "[ -e etc/web/prefixes.conf ] || exit 4\n")
    web.tell()
    host = Host(str(web.root.path))
    with host.lock():
        (web.root.path / FILE).unlink()
        APPLIERS["file"](host).flush()
        assert web.file == HEAD and not web.treated


def test_a_switch_from_one_applier_to_another_leaves_nothing_of_the_first(web: FileDouble) -> None:
    web.tell()
    web.root.write("usr/local/sbin/ip", "#!/bin/sh\n[ $3 != rule ] || echo lookup main\n")
    # No route leads anywhere here.
    told = web.tell(web.configuration(number=2, applier="routes"))
    assert len(told["skipped"]) == 2
    assert web.file == HEAD and not web.treated and not web.root.exists(PREFIX_FILE_TOLD[1:])


WRONG = yaml.safe_load(Path(__file__).with_name("wrong_web_servers.yaml").read_text())


@pytest.mark.parametrize("says", WRONG)
def test_what_a_host_says_wrongly_is_told_by_its_field(web: FileDouble, says: str) -> None:
    web.write_setup(WRONG[says])
    assert says in (said := web.refusal()) and said.startswith("refused")
    assert not web.root.exists("var") and not web.calls


def test_a_host_that_says_nothing_of_its_web_server_is_refused(web: FileDouble) -> None:
    (web.root.path / SETUP).unlink()
    assert "there is no /etc/edgetune/prefix_file.json" in web.refusal()
    web.root.write(SETUP, "[")
    assert "/etc/edgetune/prefix_file.json: JSONDecodeError" in web.refusal()
    assert not web.root.exists("var")
    web.write_setup({})
    web.tell()
    (web.root.path / SETUP).unlink()
    assert "there is no /etc/edgetune/prefix_file.json" in web.refusal(web.configuration([], 2))
    assert web.file == HEAD and web.root.exists(CONGESTION[1:])


def test_what_others_than_root_can_change_is_neither_run_nor_written(web: FileDouble) -> None:
    setup, folder = web.root.path / SETUP, web.root.path / "etc/web"
    setup.chmod(0o666)
    assert "others than root can change it" in web.refusal()
    setup.chmod(0o644)
    setup.parent.chmod(0o777)
    assert "others than root can change /etc/edgetune" in web.refusal()
    setup.parent.chmod(0o755)
    (web.root.path / FILE).unlink()
    (web.root.path / FILE).symlink_to("other.conf")
    assert "is not a plain file" in web.refusal()
    folder.chmod(0o777)
    assert "others than root can change /etc/web" in web.refusal()
    folder.chmod(0o755)
    assert not web.calls and not web.root.exists("var") and web.others == "of somebody else\n"


def test_what_a_host_could_not_use_or_take_back_is_refused(web: FileDouble) -> None:
    allowed = web.root.write("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic\n")
    says = "tcp_allowed_congestion_control has no bbr: the web server may not"
    assert says in web.refusal()
    allowed.write_text("reno cubic bbr\n")
    (web.root.path / "etc/init.d/rcS").unlink()
    assert "a boot would not take the file back" in web.refusal()


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
