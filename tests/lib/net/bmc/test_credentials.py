# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import InputError
from edgetune.net.bmc.credentials import Credentials, Login
from tests.support.builders import write_yaml

SECRET = "hunter2-%41"
NAMES = ("EDGETUNE_BMC_FRA_1", "EDGETUNE_BMC_LAB")


def _file(folder: Path, document: Any, mode: int = 0o600) -> Path:
    path = write_yaml(folder / "bmc.yaml", document)
    path.chmod(mode)
    return path


def _credentials(
    keys: Mapping[str, str] | None = None,
    file: Path | str = "",
    environment: Mapping[str, str] | None = None,
) -> Credentials:
    return Credentials((keys or {}).get, str(file), environment or {})


def _login(who: str) -> dict[str, str]:
    return {"username": who, "password": SECRET}


def test_the_datastore_comes_before_the_file_and_the_file_before_the_environment(
    tmp_path: Path,
) -> None:
    keys = {"edgetune.bmc.fra-1": json.dumps(_login("of the datastore"))}
    file = _file(tmp_path, {"fra-1": _login("of the file")})
    environment = dict.fromkeys(NAMES, f"of the environment:{SECRET}")
    places = [(keys, file, environment), ({}, file, environment), ({}, "", environment)]
    logins = [_credentials(*place)("fra-1") for place in places]
    told = [login.username.removeprefix("of the ") for login in logins]
    assert told == ["datastore", "file", "environment"]
    assert {login.password for login in logins} == {SECRET}
    # Each name is looked for in all places.
    assert _credentials({}, file, environment)("lab").username == "of the environment"


def test_a_password_may_have_colons_and_be_empty() -> None:
    environment = {"EDGETUNE_BMC_A": "root:a:b", "EDGETUNE_BMC_B": "root:"}
    assert _credentials(environment=environment)("a") == Login("root", "a:b")
    assert _credentials(environment=environment)("b") == Login("root", "")


def test_what_is_nowhere_says_where_it_was_looked_for(tmp_path: Path) -> None:
    file = _file(tmp_path, {"other": _login("somebody")})
    with pytest.raises(InputError) as caught:
        _credentials({}, file)("lab")
    assert str(caught.value) == (
        f"credentials: lab: found in none of: the encrypted key edgetune.bmc.lab, {file}, "
        "the environment variable EDGETUNE_BMC_LAB"
    )
    with pytest.raises(InputError, match="key edgetune.bmc.lab, the environment variable"):
        _credentials()("lab")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SECRET, "edgetune.bmc.lab: is no JSON with username and password"),
        (json.dumps([SECRET]), "edgetune.bmc.lab: must be a mapping, not a list"),
        (json.dumps({"username": SECRET}), "edgetune.bmc.lab: password: is missing"),
        (json.dumps({"password": SECRET}), "edgetune.bmc.lab: username: is missing"),
        (json.dumps({"username": [SECRET], "password": "x"}), "username: must be text"),
        (json.dumps({"username": "x", "password": {"a": SECRET}}), "password: must be text"),
        (json.dumps({**_login("x"), "domain": SECRET}), "edgetune.bmc.lab: domain: is not known"),
    ],
)
def test_a_malformed_key_is_named_and_not_shown(text: str, says: str) -> None:
    _complains(_credentials({"edgetune.bmc.lab": text}), says)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"lab": {"username": "x", "password": 12345678}}, "lab.password: must be text"),
        ({"lab": {"username": SECRET}}, "lab.password: is missing"),
        ({"lab": SECRET}, "lab: must be a mapping, not text"),
        ([SECRET], "must be a mapping, not a list"),
        ({"lab": {**_login("x"), "port": SECRET}}, "lab.port: is not known"),
    ],
)
def test_a_malformed_file_is_named_and_not_shown(tmp_path: Path, document: Any, says: str) -> None:
    file = _file(tmp_path, document)
    _complains(_credentials({}, file), says, str(file))


@pytest.mark.parametrize(
    "password",
    [f"'{SECRET}", f"*{SECRET}", f"!{SECRET}", f"%{SECRET}", f"{{{SECRET}: 1, {SECRET}: 2}}"],
)
def test_broken_yaml_is_named_and_not_shown(tmp_path: Path, password: str) -> None:
    file = tmp_path / "bmc.yaml"
    file.write_text(f"lab:\n  username: x\n  password: {password}\n", encoding="utf-8")
    file.chmod(0o600)
    _complains(_credentials({}, file), "is not YAML (put what is secret in quotes)", str(file))


def test_what_is_malformed_or_not_there_is_named_and_not_shown(tmp_path: Path) -> None:
    made = _credentials(environment={"EDGETUNE_BMC_LAB": SECRET})
    _complains(made, "EDGETUNE_BMC_LAB: must be USERNAME:PASSWORD")
    made = _credentials({}, tmp_path / "nowhere.yaml", {"EDGETUNE_BMC_LAB": f"x:{SECRET}"})
    _complains(made, "bmc_credentials_file: cannot be read", "nowhere.yaml")
    login = Login("root", SECRET)
    assert repr(login) == "Login(username='root')"
    assert SECRET not in f"{login} {login!r} {[login]}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = _file(tmp_path, {"lab": _login("x")}, mode)
    _complains(_credentials({}, file), "others can read it; chmod 600 it", str(file))


def _complains(made: Credentials, *says: str) -> None:
    with pytest.raises(InputError) as caught:
        made("lab")
    text = str(caught.value)
    assert all(each in text for each in says), text
    context = None if caught.value.__suppress_context__ else caught.value.__context__
    for shown in (text, repr(caught.value), repr(caught.value.__cause__), str(context)):
        assert SECRET not in shown
        assert "12345678" not in shown
