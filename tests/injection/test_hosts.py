# SPDX-License-Identifier: Apache-2.0
"""No text becomes a part of a command on a host, or an expression; what is sent there is data."""

from __future__ import annotations

import ast
import json
import re
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgetune.agent.observe import read_settings
from edgetune.agent.protocol import BadRequest, Request
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.errors import InputError
from edgetune.intent.rendering import render
from edgetune.intent.tuning import load_tuning
from edgetune.net.bmc.payload import MAX_TEXT, messages_of
from edgetune.net.bmc.registry import Registry
from edgetune.net.hosts import connection, conversation, fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.hostile import HOSTILE
from tests.support.trials import trials

WHOLE = {name: text for name, text in HOSTILE.items() if name != "half a character"}
ONE_LINE = {name: text for name, text in WHOLE.items() if text.isascii() and text.isprintable()}
LINES_OF_DATA = {"sysctl", "service.property"}
"""Kinds whose value is any one line: it is written into one file, and read back."""
CALLS_OF_A_SHELL = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
sources = sorted(
    path for room in ("lib", "actions", "sensors") for path in (ROOT / room).rglob("*.py")
)


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls in a file, by the last part of what is called."""
    text = path.read_text(encoding="utf-8")
    # Few files have any of these words, and to parse all of them takes seconds.
    if not any(word in text for word in (*CALLS_OF_A_SHELL, "shell", "exec_command")):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = node.func
            yield getattr(called, "attr", "") or getattr(called, "id", ""), node


# Shell.


@pytest.mark.parametrize("path", sources, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_starts_a_shell(path: Path) -> None:
    for name, call in calls(path):
        assert name not in CALLS_OF_A_SHELL, name
        assert not any(keyword.arg == "shell" for keyword in call.keywords), name
        if name == "exec_command":
            assert [ast.unparse(given) for given in call.args] == ["login.command"]


def test_a_request_is_data_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one command that the shell of a host sees is the same for all of them."""
    channels: list[mock.Mock] = []
    error = {"reason": "refused", "field": None, "message": "not today"}
    reply = {"edgetune": 1, "verb": "plan", "ok": False, "error": error}

    def log_in(*given: Any) -> mock.Mock:
        channels.append(mock.Mock(closed=True))
        channels[-1].recv.side_effect = [json.dumps(reply).encode() + b"\n", b""]
        return mock.Mock(open_session=lambda timeout: channels[-1])

    def connect(login: connection.Login, host: Host) -> connection.BoundedConnection:
        return connection.BoundedConnection(socket.socket(), 0, 0)

    monkeypatch.setattr(conversation, "_connect", connect)
    monkeypatch.setattr(conversation, "log_in", log_in)
    monkeypatch.setattr(fleet, "load_login_key", lambda config: None)
    monkeypatch.setattr(fleet, "load_known_hosts", lambda path: mock.Mock())
    given = {"inventory": "none", "ssh_key_file": "none", "ssh_known_hosts": "none"}
    asked = fleet.Fleet(read_config(given))
    for text in HOSTILE.values():
        host = Host(text, text, 22, text, text, text)
        answer = asked.ask([host], "plan", lambda host, text=text: {text: text})[text]
        assert answer.error == "not today"
    for channel in channels:
        channel.exec_command.assert_called_once_with(conversation.BOOTSTRAP)
    requests = [_request(channel.sendall.call_args.args[0]) for channel in channels]
    assert [own[text] for own, text in zip(requests, HOSTILE.values())] == [*HOSTILE.values()]


def _request(data: bytes) -> Any:
    size, _, rest = data.partition(b"\n")
    assert zlib.decompress(rest[: int(size)]).startswith(b"# SPDX-License-Identifier")
    return json.loads(rest[int(size) :])


# What an agent takes.


def refusal(kind: str, target: dict[str, Any], value: Any, other: Any = None) -> str:
    """The field that an agent complains about, or nothing."""
    id = KINDS[kind].id_of({name: str(part) for name, part in target.items()})
    own = {"id": id, "kind": kind, "target": target, "value": value, "only": None, "restart": None}
    try:
        read_settings(Request({"settings": [{**own, **(other or {})}]}))
    except BadRequest as error:
        return str(error.field)
    return ""


TRIALS = trials()


def target_of(kind: str) -> dict[str, Any]:
    return dict(TRIALS[kind].target)


FIELDS = [(kind, field) for kind, own in TRIALS.items() for field in own.target]
PATHS = {"absolute"}
"""A path is what a file or a mount is named by; which of them no tuning has, other tests say."""


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_an_agent_takes_no_target_but_a_name(kind: str, field: str) -> None:
    for name, text in HOSTILE.items():
        if field in ("path", "mount") and name in PATHS:
            continue
        found = refusal(kind, {**target_of(kind), field: text}, "1")
        assert found.startswith("settings[0].target"), (name, found)


@pytest.mark.parametrize("kind", TRIALS)
def test_an_agent_takes_no_value_but_one_of_its_kind(kind: str) -> None:
    for name, text in HOSTILE.items():
        if kind in LINES_OF_DATA and name in ONE_LINE:
            assert refusal(kind, target_of(kind), text) == "", name
        else:
            assert refusal(kind, target_of(kind), text), name
            part = dict.fromkeys(("rx", "active", "equal", "initcwnd", text), text)
            assert refusal(kind, target_of(kind), part), name


@pytest.mark.parametrize("field", ["id", "kind", "only", "restart"])
def test_an_agent_takes_no_other_text(field: str) -> None:
    for name, text in HOSTILE.items():
        found = refusal("sysctl", target_of("sysctl"), "1", {field: text})
        assert found.startswith("settings[0]."), name


# What the catalogue takes, and what is worked out on a host.


def a_tuning(**setting: Any) -> dict[str, Any]:
    own = {"kind": "sysctl", "key": "net.core.somaxconn", "why": "It is.", "source": "a test"}
    return {
        "name": "own",
        "version": "1.0.0",
        "summary": "A test.",
        "intent": {"improve": "packet_drops"},
        "guards": [{"metric": "health_failed"}],
        "settings": [{**own, **setting}],
    }


def rendered(tmp_path: Path, value: str, facts: dict[str, Any]) -> Any:
    (row,) = render(load_tuning(write_yaml(tmp_path / "own.yaml", a_tuning(value=value))), facts)
    return row.value


def test_the_catalogue_takes_no_target_but_a_name(tmp_path: Path) -> None:
    for kind, own in KINDS.items():
        for field in own.target:
            for name, text in WHOLE.items():
                if field in ("path", "mount") and name in PATHS:
                    continue
                # It is a name in a JSON document, and nowhere else.
                if name == "option" and kind == "bios.attribute":
                    continue
                document = a_tuning()
                del document["settings"][0]["key"]
                target = target_of(kind) if kind in TRIALS else dict.fromkeys(own.target, "a")
                document["settings"][0].update({"kind": kind, "value": "1", **target, field: text})
                with pytest.raises(InputError, match=r"settings\[0\]"):
                    load_tuning(write_yaml(tmp_path / "own.yaml", document))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_fact_is_rendered_once(text: str, tmp_path: Path) -> None:
    """What a host says of itself is a value in an expression, never one.

    One that no value can be is refused as that.
    """
    if not re.fullmatch(LINE, text.strip()):
        with pytest.raises(InputError, match=r"settings\[0\].value: .* does not match"):
            rendered(tmp_path, "{{ hostname }}", {"hostname": text})
        return
    assert rendered(tmp_path, "{{ hostname }}", {"hostname": text}) == text.strip()
    assert rendered(tmp_path, "{{ hostname ~ '' }}", {"hostname": text}) == text.strip()


@pytest.mark.parametrize(
    "value",
    [
        "{{ hostname.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ hostname.format_map({}) if False else ''.__class__.mro() }}",
        "{{ self.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ undefined_here }}",
    ],
)
def test_an_expression_reaches_nothing_but_facts(value: str, tmp_path: Path) -> None:
    """Refused as it is loaded where its form shows it, else where a host's facts lack it."""
    says = "does not fit the host's facts|an expression may hold no|is not known here"
    with pytest.raises(InputError, match=says):
        rendered(tmp_path, value, {"hostname": "e000"})


# What a BMC says.


def test_what_a_bmc_says_is_short_and_can_be_shown() -> None:
    for text in [*HOSTILE.values(), "a" * 10_000]:
        told = {"MessageId": text, "Severity": text, "Message": text, "MessageArgs": [text]}
        (message,) = messages_of({"@Message.ExtendedInfo": [told]})
        for shown in (*message.about, message.id, message.severity, message.text):
            assert shown.isprintable()
            assert len(shown) <= MAX_TEXT


def test_a_registry_is_matched_and_never_obeyed() -> None:
    """Names and patterns of ours are looked for in texts of theirs, not the other way round."""
    for text in HOSTILE.values():
        entry = {"AttributeName": text, "DisplayName": text, "Type": text, "Value": [text]}
        registry = Registry({"RegistryEntries": {"Attributes": [entry]}})
        assert registry.displayed("Snoop") == []
        assert registry.offers(".").isprintable()
        found = registry.problem({text: text}, {})
        assert found is not None
        assert found.isprintable() or not text.isprintable()
