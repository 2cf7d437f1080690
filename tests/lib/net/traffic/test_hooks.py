# SPDX-License-Identifier: Apache-2.0
"""What is particular to hooks: their document, programs that hang, a login, nginx."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import DrainError, InputError
from edgetune.net.traffic import hook
from edgetune.net.traffic.driver import Server
from edgetune.net.traffic.drivers.command import Command
from edgetune.net.traffic.drivers.http_hook import HttpHook
from edgetune.net.traffic.hook import read_hook
from tests.support.load_balancers import SERVERS
from tests.support.load_balancers.command import PROGRAM, running_nginx
from tests.support.prometheus_api import Reply, api

SERVER: dict[str, Any] = {"name": "e01", "withdrawn": "", "up": True, "sessions": None}


def document(**changed: Any) -> dict[str, Any]:
    return {"servers": [{**SERVER, **changed}]}


def test_a_server_has_what_its_hook_tells() -> None:
    told = {"address": "10.0.0.1", "port": 80, "withdrawn": "out", "leaving": True, "sessions": 3}
    servers, refuses = read_hook({**document(**told), "refuses": "read only"})
    assert servers == {"e01": Server("e01", "out", True, 3, "10.0.0.1", 80, True, False, True)}
    assert refuses == "read only"
    (server,) = read_hook(document(idle="weight 0"))[0].values()
    assert (server.idle, server.is_serving, server.is_let_in) == ("weight 0", False, True)
    for checked in (True, False):
        assert read_hook(document(checked=checked))[0]["e01"].passing is not checked


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({}, "servers: is missing"),
        ({"servers": [{**SERVER}, {**SERVER}]}, r"name: there are two servers e01"),
        (document(name="-x"), r"servers\[0\]\.name: '-x' does not match"),
        (document(withdrawn=None), "withdrawn: is missing"),
        (document(withdrawn="ready"), "withdrawn: ready is the word for a server that is not"),
        (document(withdrawn="ready:0%"), "withdrawn: 'ready:0%' does not match"),
        (document(withdrawn="ready:0"), "withdrawn: ready is the word for a server that is not"),
        (document(withdrawn="a b"), "withdrawn: 'a b' does not match"),
        (document(idle=0), "idle: must be text"),
        (document(idle="a\nb"), "idle: 'a.+b' does not match"),
        (document(up="no"), "up: must be true or false, not text"),
        (document(sessions=-1), "sessions: -1 is below 0"),
        (document(sessions="3"), "sessions: must be a number"),
        (document(sesions=3), "sesions: is not known here"),
        ({"servers": [{"name": "e01", "withdrawn": "", "up": True}]}, "sessions: is missing"),
        ({"servers": [{"name": "e01", "withdrawn": "", "sessions": 0}]}, "up: is missing"),
    ],
)
def test_what_a_hook_leaves_out_or_gets_wrong_is_no_server(told: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_hook(told)


class TestHttp:
    def test_a_token_is_sent_and_never_shown(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("secret-word")
        token.chmod(0o600)
        with api() as server:
            driver = HttpHook(server.url, str(token), "")
            server.answer = lambda asked: Reply(b'{"detail": "no secret-word here"}', 401)
            with pytest.raises(DrainError, match=r"answers 401: no \*\*\* here"):
                driver.servers()
            assert server.headers[-1]["Authorization"] == "Bearer secret-word"

    def test_what_a_lost_answer_had_done_counts(self) -> None:
        state = {"e01": ""}

        def answer(asked: Any) -> Reply:
            if "do" in asked:
                state["e01"] = "out"
                return Reply(b"", 502)
            word = state["e01"]
            body = f'{{"servers": [{{"name": "e01", "withdrawn": "{word}", "up": true,'
            return Reply(f'{body} "sessions": 0}}]}}'.encode())

        with api() as server:
            server.answer = answer
            HttpHook(server.url, "", "").withdraw("e01")
        assert state == {"e01": "out"}

    @pytest.mark.parametrize(
        ("do", "told"),
        [
            (HttpHook.withdraw, "e01 is ready, not withdrawn"),
            (HttpHook.isolate, "e01 is ready, not withdrawn"),
            (lambda driver, server: driver.restore(server, "out"), "e01 is ready, not out"),
        ],
    )
    def test_a_hook_that_fails_has_done_nothing_and_says_why_at_once(
        self, do: Any, told: str
    ) -> None:
        body = b'{"servers": [{"name": "e01", "withdrawn": "", "up": true, "sessions": 0}]}'
        with api() as server:
            server.answer = lambda asked: (
                Reply(b'{"error": "no"}', 500) if "do" in asked else Reply(body)
            )
            with pytest.raises(DrainError, match=rf"{told} \({server.url}: answers 500: no\)"):
                do(HttpHook(server.url, "", ""), "e01")
        assert [asked.get("do", "look") for asked in server.asked].count("look") <= 3


@pytest.mark.processes
class TestCommand:
    def test_a_program_that_hangs_is_ended_with_all_that_it_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hook, "TIMEOUT", 0.3)
        driver = _program(tmp_path, f"(sleep 1; touch {tmp_path}/later) & sleep 60")
        with pytest.raises(DrainError, match="did not end in time"):
            driver.servers()
        time.sleep(1.2)
        assert not (tmp_path / "later").exists()

    def test_the_last_line_on_standard_error_says_why(self, tmp_path: Path) -> None:
        driver = _program(tmp_path, "echo first >&2; echo no way >&2; echo; exit 4")
        with pytest.raises(DrainError, match="servers: exit status 4: no way"):
            driver.servers()

    def test_a_program_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DrainError, match="/nothing: cannot be run: No such file"):
            Command("/nothing").servers()


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
class TestNginx:
    def test_a_file_that_nginx_refuses_is_put_back(self, tmp_path: Path) -> None:
        with running_nginx(tmp_path) as nginx:
            before = (tmp_path / "servers.conf").read_text()
            # Nothing of it is wrong before the next load.
            configuration = tmp_path / "nginx.conf"
            configuration.write_text(configuration.read_text() + "nonsense;\n")
            done = _asked(tmp_path, "withdraw", SERVERS[0])
            assert done.returncode and "nginx.conf test failed" in done.stderr
            assert (tmp_path / "servers.conf").read_text() == before
            assert nginx.sends_to(SERVERS[0])

    def test_a_file_that_nginx_has_not_loaded_tells_nothing(self, tmp_path: Path) -> None:
        with running_nginx(tmp_path):
            file = tmp_path / "servers.conf"
            text = file.read_text().replace(";", " down;", 1)
            time.sleep(2)  # a start time has seconds of some hundredths, and one is granted
            file.write_text(text)
            done = _asked(tmp_path, "servers")
            assert done.returncode and "was changed after nginx had loaded it" in done.stderr

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("server 127.0.0.1:1;", "line 5 is no server with its name"),
            ("include other;", "line 5 is no server with its name"),
            (f"server 127.0.0.1:1;  # {SERVERS[0]}", "has a name twice"),
        ],
    )
    def test_a_line_that_is_not_understood_is_refused(
        self, tmp_path: Path, line: str, says: str
    ) -> None:
        lines = [f"server 127.0.0.1:{n};  # {name}" for n, name in enumerate(SERVERS, 9)]
        (tmp_path / "servers.conf").write_text("\n".join([*lines, line, ""]))
        done = _asked(tmp_path, "withdraw", SERVERS[1])
        assert done.returncode and says in done.stderr


def _program(folder: Path, text: str) -> Command:
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return Command(str(program))


def _asked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), f"--file={folder}/servers.conf"]
    command += [f"--pid={folder}/nginx.pid", f"--nginx=nginx -c {folder}/nginx.conf"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)
