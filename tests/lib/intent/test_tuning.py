# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.base.errors import InputError
from edgetune.intent.rendering import misfits, render
from edgetune.intent.tuning import Tuning, find_tuning, load_tuning
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.cases import rows

CASES = Path(__file__).with_name("cases") / "tuning.yaml"

LOOP = "{% for i in range(1000000000) %}x{% endfor %}"


def _document(interface: str = "eth0") -> dict[str, Any]:
    """A tuning of the catalogue, for one interface where the catalogue says all of them."""
    text = (ROOT / "tunings" / "rps_spread.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    for own in document["settings"]:
        own["interface"] = interface
    return document


def test_no_tuning_of_the_catalogue_names_an_interface() -> None:
    for file in sorted((ROOT / "tunings").glob("*.yaml")):
        named = {own.target.get("interface", "*") for own in load_tuning(file).settings}
        assert named == {"*"}, file.name


def test_own_tunings_come_before_the_catalogue(tmp_path: Path) -> None:
    document = _document()
    document["summary"] = "ours"
    write_yaml(tmp_path / "rps_spread.yaml", document)
    assert find_tuning("rps_spread", [tmp_path, ROOT / "tunings"]).summary == "ours"
    with pytest.raises(InputError, match="no tuning 'faster'; known: .*accept_queue"):
        find_tuning("faster", [ROOT / "tunings"])


RING, USECS = "{{ nic.ring_max.rx }}", {"adaptive-rx": True, "adaptive-tx": "off"}
HALF = {"rx": 4, "tx": "{{ 2 if cpus.count > 4 else '' }}"}


@pytest.mark.parametrize(
    ("kind", "value", "facts", "made"),
    [
        # A ring can be as large as the card takes.
        ("nic.ring", {"rx": RING}, {"nics": {"eth0": {"ring_max": {"rx": 8160}}}}, {"rx": 8160}),
        ("nic.ring", {"rx": RING}, {"nics": {"eth0": {"ring_max": None}}}, "rx: does not fit"),
        # Switches are what YAML makes of them.
        (
            "nic.coalesce",
            {**USECS, "rx-usecs": "{{ 25 * 2 }}"},
            {},
            {"adaptive-rx": "on", "adaptive-tx": "off", "rx-usecs": 50},
        ),
        (
            "nic.coalesce",
            {"rx-usecs": "{{ 'fast' }}"},
            {},
            "rx-usecs: 'fast' must be a whole number",
        ),
        ("nic.channels", {"rx": True}, {}, "rx: 'on' must be a whole number"),
        # A part whose expression comes to nothing is left out.
        ("nic.channels", HALF, {"cpus": {"online": "0-7", "count": 8}}, {"rx": 4, "tx": 2}),
        ("nic.channels", HALF, {"cpus": {"online": "0-3", "count": 4}}, {"rx": 4}),
        ("nic.channels", {"rx": 4, "tx": ""}, {}, "tx: '' must be a whole number"),
    ],
)
def test_values_are_worked_out_from_the_facts_of_each_host(
    tmp_path: Path, kind: str, value: Any, facts: dict[str, Any], made: Any
) -> None:
    document = _document()
    document["settings"][0].update(kind=kind, value=value)
    given = {"cpus": {"online": "0"}, "nics": {}, **facts}
    raises = pytest.raises(InputError, match=rf"settings\[0\]\.value(\.|: ){made}")
    with raises if isinstance(made, str) else nullcontext():
        tuning = load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document))
        rendered = render(tuning, given)
        assert [own.value for own in rendered] == [made, given["cpus"]["online"]]
        assert tuning.disruption == ("live" if kind == "nic.coalesce" else "drain")


def test_a_setting_is_set_once_and_a_guard_optional_only_if_it_says_so(tmp_path: Path) -> None:
    document = _document()
    document["guards"] = [{"metric": "cpu"}, {"metric": "retransmits", "optional": True}]
    found = load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document)).guards
    assert [(own.metric, own.optional) for own in found] == [("cpu", False), ("retransmits", True)]
    document["settings"].append(document["settings"][1])
    with pytest.raises(InputError, match="nic.rps:eth0 is set twice"):
        load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document))


FACTS: dict[str, Any] = {"cpus": {"online": "0", "many": list(range(1000))}, "nics": {"eth0": {}}}


def load_with(folder: Path, value: str, **setting: Any) -> Tuning:
    """A tuning with that value."""
    document = _document()
    document["settings"][1].update(value=value, **setting)
    return load_tuning(write_yaml(folder / "rps_spread.yaml", document))


NO_FIT = ["cpus.onlin", "nic.ring.rx", "1 / 0", "''.__class__", "cpus.online * 10", "range"]
NO_FIT += ["cpus.many * 10", "'%9d' % cpus.online", "'x' * 1000000000", "[1] * 1000000000"]
NO_FIT += ["'%1000000000d' % 1", "4294967296 * 4294967296 * 4294967296 * 2", "cpus | abs"]


@pytest.mark.parametrize("value", [*NO_FIT, "cpus.online | dictsort"])
def test_an_expression_that_does_not_fit_names_its_field(tmp_path: Path, value: str) -> None:
    tuning = load_with(tmp_path, f"{{{{ {value} }}}}")
    with pytest.raises(InputError, match=r"rps_spread.yaml: settings\[1\].value: does not fit"):
        render(tuning, FACTS)


def test_what_an_expression_comes_to_is_bounded(tmp_path: Path) -> None:
    tuning = load_with(tmp_path, "{{ cpus.online }}" * 20)
    with pytest.raises(InputError, match="comes to more than 1048576 characters"):
        render(tuning, {"cpus": {"online": "0" * 100_000}, "nics": {}})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{{ (", "unexpected 'end of template'"),
        (LOOP, "an expression may hold no loop"),
        ("{% for c in cpus.many %}{{ c }}{% endfor %}", "an expression may hold no loop"),
        ("{{ range(1000000000) | list }}", "an expression may hold no call"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "an expression may hold no call"),
        ("{{ 10 ** 10 ** 10 }}", "an expression may hold no power"),
        ("{% set x = 'x' ~ 'x' %}{{ x }}", "an expression may hold no variable of its own"),
        ("{% macro m() %}{{ m }}{% endmacro %}{{ m }}", "an expression may hold no macro"),
        ("{% include 'x' %}", "an expression may hold no include"),
        ("{{ 'x' | center(1000000000) }}", "an expression may hold no filter center"),
        ("{{ 'x' | replace('x', 'xx') }}", "an expression may hold no filter replace"),
        ("{{ cpus.many | map('center', 999999999) }}", "an expression may hold no filter map"),
        ("{{ 1 | round(-1000000000) }}", "the arguments of round must be short texts or small"),
        ("{{ 1 | round(1000000000) }}", "the arguments of round must be short texts or small"),
        (f"{{{{ cpus.many | join('{'x' * 101}') }}}}", "the arguments of join must be short"),
        ("{{ 1 | round(*cpus.many) }}", "the arguments of round must be written out"),
        (f"{{{{ {'(' * 10_000} }}}}", "an expression is too long"),
        (f"{{{{ {'-' * 10_000}1 }}}}", "an expression is too long"),
        (f"{{{{ 1{' + 1' * 10_000} }}}}", "an expression is too long"),
        (f"{{{{ {'[' * 60}1{']' * 60} }}}}", "an expression is too long"),
        ("{{ 1 }}" * 10_000, "an expression is too long"),
        (f"{{{{ 1 }}}}{'x' * 100_000}", "a text with an expression has at most 100000 characters"),
    ],
)
def test_what_repeats_or_grows_is_no_expression(tmp_path: Path, value: str, says: str) -> None:
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        load_with(tmp_path, value)
    assert f"rps_spread.yaml: settings[1].value: {says}" in str(caught.value)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("{{ [cpus.many | length, 8] | min * 2 }}", "16"),
        ("{{ cpus.online ~ ',' ~ (7 % 4) }}", "0,3"),
        ("{% if cpus.many %}{{ cpus.many[3] }}{% else %}1{% endif %}", "3"),
        ("{{ cpus.few | default(cpus.online) }}", "0"),
        ("{{ cpus.many[:4] | join(',') }}", "0,1,2,3"),
        ("{{ (cpus.many | sum / 70) | round(0, 'floor') | int }}", "7135"),
        ("{{ cpus.online if nic is defined and cpus.online in ('0', '1') else '' }}", "0"),
    ],
)
def test_an_expression_reckons_with_facts(tmp_path: Path, value: str, made: str) -> None:
    assert render(load_with(tmp_path, value), FACTS)[1].value == made


def test_the_digest_covers_every_word(tmp_path: Path) -> None:
    before = load_tuning(ROOT / "tunings" / "rps_spread.yaml").digest
    document = _document("*")
    assert load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document)).digest == before
    document["settings"][0]["why"] += "!"
    assert load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document)).digest != before


HOST: dict[str, Any] = {
    "os": {"id": "debian", "version": "12"},
    "kernel": "5.10.0-28-amd64",
    "cpus": {"online": "0-7", "count": 8, "vendor": "GenuineIntel", "nodes": {"0": "0-7"}},
    "nics": {
        "eth0": {"driver": "ixgbe", "up": True},
        "eth1": {"driver": "ixgbe", "up": False},
        "mgmt": {"driver": "igb", "up": True},
    },
}


def _for(tmp_path: Path, applies_to: dict[str, Any], interface: str = "eth0") -> Tuning:
    document = {**_document(), "applies_to": applies_to}
    for setting in document["settings"]:
        setting["interface"] = interface
    return load_tuning(write_yaml(tmp_path / "rps_spread.yaml", document))


@pytest.mark.parametrize(
    ("applies_to", "why"),
    rows(CASES, "a_tuning_says_which_hosts_it_is_for"),
)
def test_a_tuning_says_which_hosts_it_is_for(
    tmp_path: Path, applies_to: dict[str, Any], why: list[str]
) -> None:
    assert misfits(_for(tmp_path, applies_to), HOST) == why


def test_a_star_stands_for_each_interface_that_is_up_and_has_a_driver_that_is_meant(
    tmp_path: Path,
) -> None:
    every = _for(tmp_path, {}, "*")
    ids = [f"{kind}:{name}" for kind in ("nic.channels", "nic.rps") for name in ("eth0", "mgmt")]
    assert [own.id for own in render(every, HOST)] == ids
    assert every.setting_of("nic.rps:mgmt") is every.settings[1]
    assert every.settings[0].id == "nic.channels:*"
    ours = _for(tmp_path, {"drivers": ["ixgbe"]}, "*")
    assert [own.target for own in render(ours, HOST)] == [{"interface": "eth0"}] * 2
    assert not misfits(ours, HOST)
    others = _for(tmp_path, {"drivers": ["ice"]}, "*")
    assert misfits(others, HOST) == ["no interface is up and has the driver ice"]
