# SPDX-License-Identifier: Apache-2.0
"""What the doctor tells beside a preflight: nodes that are not alike, files of a site that lie in
the folder of the pack, which an upgrade removes, certificates that expire soon, and all that is
wrong with what a site wrote down, in one run, with file, line and cure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from edgetune.base import clock
from edgetune.base.files import load_yaml
from edgetune.rollout.context import Context
from edgetune.rollout.planning import site_checks
from edgetune.rollout.planning.preflight import Subject
from edgetune.rollout.planning.site_checks import site_files
from edgetune.rollout.steps.doctor_pop import check_nodes, check_pack_folder, doctor_pop
from edgetune.rollout.store import nodes
from edgetune.rollout.store.nodes import Node, differences, this_node
from edgetune.site.alertmanager import Alertmanager
from edgetune.site.config import Config, read_config
from tests.support import ROOT
from tests.support.builders import inventory_document, write_yaml
from tests.support.cases import cases, fits, unlike
from tests.support.real_sshd import keygen, make_key
from tests.support.world import EmptyWorld, shown


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture
def config(world: EmptyWorld) -> Config:
    return world.context.config


@pytest.mark.parametrize("what", ["", "inventory", "ssh_key_file", "ssh_known_hosts"])
def test_the_node_that_holds_something_else_is_named(
    tmp_path: Path, config: Config, what: str
) -> None:
    alike = [this_node(config)._replace(name=name) for name in ("one", "two")]
    other = tmp_path / "other"
    other.write_text("something else")
    third = this_node(replace(config, **({what: other} if what else {})))._replace(name="three")
    told = [f"{what} on three is not that on one, two"] if what else []
    assert list(differences([third, *alike])) == told


def test_what_a_node_alone_cannot_read_is_told(
    tmp_path: Path, config: Config, monkeypatch: Any
) -> None:
    """What all lack makes no difference, nor is one node unlike itself."""
    empty, own = tmp_path / "empty", tmp_path / "own"
    empty.write_text("")
    own.mkdir()
    config = replace(config, tunings=(own, *config.tunings))
    two = this_node(config)._replace(name="two")
    own.rmdir()
    lost = replace(config, inventory=tmp_path / "none", ssh_known_hosts=empty)
    one = this_node(lost)._replace(name="one")
    assert sorted(differences([one, two])) == [
        "inventory cannot be read (No such file or directory) on one",
        "ssh_known_hosts is empty on one",
        f"tunings {own} is not there on one",
    ]
    for alone in ([one], [one, one._replace(name="three")]):
        assert list(differences(alone)) == []

    def walk(folder: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        onerror(PermissionError(13, "Permission denied", f"{folder}/own"))
        yield from ()

    monkeypatch.setattr(nodes.os, "walk", walk)
    told = "cannot be read (Permission denied: "
    own.mkdir()
    assert this_node(config).holds[f"tunings {config.tunings[0]}"].startswith(told)


def test_a_file_is_told_to_its_end_and_a_folder_by_its_files_and_their_names(
    tmp_path: Path, config: Config
) -> None:
    large, own = tmp_path / "large", tmp_path / "own"
    own.mkdir()
    (own / "a.yaml").write_text("one")
    config = replace(config, inventory=large, tunings=(own,))
    told = []
    for end in ("a", "b"):
        large.write_bytes(bytes(11 << 20) + end.encode())
        told.append(this_node(config).holds)
    assert told[0]["inventory"] != told[1]["inventory"]
    (own / "a.yaml").rename(own / "b.yaml")
    assert this_node(config).holds != told[1]


def test_the_pack_is_told_by_what_stackstorm_runs(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("actions", "workflows", "sensors", "lib", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.yaml").write_text("one")
    monkeypatch.setattr(nodes, "_ROOT", tmp_path)
    told: Any = nodes._of_pack
    before = told.__wrapped__()
    (tmp_path / "lib/file.pyc").write_text("compiled")
    (tmp_path / ".git/file.yaml").write_text("two")
    assert told.__wrapped__() == before
    for name in ("actions", "workflows", "sensors", "lib"):
        (tmp_path / name / "file.yaml").write_text("two")
        assert told.__wrapped__() != before
        (tmp_path / name / "file.yaml").write_text("one")


def test_what_one_node_alone_is_configured_with_is_told() -> None:
    now = clock.wall()
    with_ca = Node("three", now - 600, {"bmc_ca_file": "a", "ssh_key_file": "k"})
    others = [Node(name, now, {"ssh_key_file": "k"}) for name in ("one", "two")]
    told = "bmc_ca_file is configured on three (10m ago), and not on one, two"
    assert list(differences([with_ca, *others])) == [told]
    one_without = [with_ca, others[0], with_ca._replace(name="two", time=now)]
    told = "bmc_ca_file is configured on three, two, and not on one"
    assert list(differences(one_without)) == [told]


def test_passwords_are_told_by_the_key_and_not_compared_with_those_of_another(
    tmp_path: Path, config: Config
) -> None:
    file = tmp_path / "passwords"
    file.write_text("lab: secret")
    config = replace(config, bmc_credentials_file=str(file))
    one = this_node(config)._replace(name="one")
    config.ssh_key_file.write_text("another key")
    two = this_node(config)._replace(name="two")
    assert one.holds["bmc_credentials_file"] != two.holds["bmc_credentials_file"]
    assert list(differences([one, two])) == ["ssh_key_file on two is not that on one"]
    # With an agent the key is the public one, with which no digest of a password is made.
    told = this_node(replace(config, ssh_agent="/run/agent")).holds
    assert "ssh_key_file" in told and not told.keys() & nodes._SECRETS


def test_the_doctor_compares_what_nodes_left_and_a_timer_leaves_it(world: EmptyWorld) -> None:
    subject = Subject(world.context, world.context.inventory.pop("lab1"), ())
    assert list(check_nodes(subject)) == []
    this = this_node(world.context.config)
    other = this._replace(name="other", holds={**this.holds, "inventory": "older"})
    world.context.nodes.keep(other)
    (finding,) = check_nodes(subject)
    assert finding.what.startswith("inventory on other is not that on ")
    assert not finding.refuses

    world.run("find_orphans")
    own = next(node for node in world.context.nodes.all() if node.name != "other")
    assert own.time == pytest.approx(clock.wall(), abs=60)
    assert "cannot" not in " ".join(own.holds.values())


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packs/edgetune"
    folder.mkdir(parents=True)
    monkeypatch.setattr(site_checks, "ROOT", folder)
    return folder


@pytest.mark.parametrize(
    ("option", "made"),
    [
        ("ssh_key_file", lambda path: path),
        ("tunings", lambda path: (Path("/elsewhere"), path)),
        ("bmc_credentials_file", str),
        ("records", lambda path: f"sqlite:///{path}"),
        ("report_dir", str),
        ("alertmanager", lambda path: Alertmanager(password_file=str(path))),
    ],
)
def test_a_path_of_the_configuration_is_named(
    world: EmptyWorld, pack: Path, option: str, made: Any
) -> None:
    config = replace(world.context.config, **{option: made(pack / "ours")})
    ((field, path),) = site_files(config)
    assert field.startswith(f"configuration.{option}") and path.endswith(str(pack / "ours"))


def test_a_path_of_the_inventory_is_named(world: EmptyWorld, pack: Path) -> None:
    assert list(site_files(world.context.config)) == []
    inventory: Any = inventory_document()
    inventory["pops"]["lab1"]["load_balancer"] = {"driver": "command", "program": f"{pack}/hook"}
    world.change_inventory(inventory)
    named = [("inventory.pops.lab1.load_balancer.program", f"{pack}/hook")]
    assert list(site_files(world.context.config)) == named


def test_links_are_followed_both_ways_and_a_name_that_only_begins_alike_is_elsewhere(
    world: EmptyWorld, pack: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(pack / "key")
    (pack / "key").write_text("k")
    # The link itself would go with the pack.
    (pack / "out").symlink_to(tmp_path / "elsewhere")
    keys = {tmp_path / "link": 1, pack / "out": 1, Path(f"{pack}_site/key"): 0}
    for key, count in keys.items():
        found = [*site_files(replace(world.context.config, ssh_key_file=key))]
        assert [field for field, _ in found] == ["configuration.ssh_key_file"] * count


def test_the_doctor_tells_it_where_stackstorm_replaces_the_pack(
    world: EmptyWorld, pack: Path
) -> None:
    assert "pack folder" not in str(world.run("doctor_pop", "lab1")["checks"])
    config = world.context.config
    world.context.config = replace(config, records="st2", report_dir=f"{pack}/reports")
    subject = Subject(world.context, world.context.inventory.pop("lab1"), ())
    (finding,) = check_pack_folder(subject)
    says = f"configuration.report_dir: {pack}/reports lies in the folder of the pack"
    assert finding.what.startswith(says) and not finding.refuses
    assert "pack folder" in world.run("doctor_pop", "lab1")["failed"]


def test_nothing_that_is_usual_lies_there(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the catalogue of the pack, which options hold beside directories of the site, nor the
    defaults of the schema, nor the example of a configuration."""
    own = world.context.config
    assert {ROOT / "tunings", ROOT / "metrics"} <= {*own.tunings, *own.metrics}
    assert site_checks.ROOT == ROOT and list(site_files(own)) == []
    monkeypatch.setattr(site_checks, "ROOT", Path("/opt/stackstorm/packs/edgetune"))
    schema = load_yaml(ROOT / "config.schema.yaml")
    texts = [str(own.get("default")) for own in schema.values()]
    example = load_yaml(ROOT / "edgetune.yaml.example")
    assert read_config(example).records == "st2"
    for value in example.values():
        texts += map(str, value if isinstance(value, list) else [value])
    assert not [text for text in texts if site_checks._is_inside(text)]


HOUR = 3600.0
DAY = 24 * HOUR


def certificate(seconds: float, encoding: Encoding = Encoding.PEM) -> bytes:
    """One that ends in so many seconds."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lb")])
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(days=60))
    built = built.not_valid_after(now + timedelta(seconds=seconds))
    return built.sign(key, hashes.SHA256()).public_bytes(encoding)


TWO = certificate(2 * DAY + HOUR) + certificate(60 * DAY)


def check(world: EmptyWorld) -> tuple[str, list[str]]:
    """What the check means, and what it finds; "" without one."""
    rows = world.run("doctor_pop", "lab1")["checks"]
    own: list[Any] = [row for row in rows if row["check"] == "certificates"]
    if not own:
        return "", []
    assert all(row["advice"] == "renew it" for row in own[0]["findings"])
    return str(own[0]["means"]), [row["what"] for row in own[0]["findings"]]


@pytest.mark.parametrize(
    ("within", "seconds", "means", "says"),
    [
        ("14d", (), "", ""),
        (
            *("14d", (15 * DAY, 3 * DAY + HOUR, 400 * DAY), "none of 3 expires within 14d"),
            "the certificate that tls://192.0.2.2:9999 shows expires in 3d...Z",
        ),
        ("14d", (15 * DAY,), "none of 1 expires within 14d", ""),
        ("20d", (15 * DAY,), "none of 1 expires within 20d", "...shows expires in 1..."),
        ("14d", (-HOUR,), "none of 1 expires within 14d", "...shows has expired at 2..."),
    ],
)
def test_what_load_balancers_show_is_warned_of_with_the_days_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    within: str,
    seconds: tuple[float, ...],
    means: str,
    says: str,
) -> None:
    world = EmptyWorld(tmp_path, certificate_warning=within)
    found: Mapping[str, bytes] = {
        f"tls://192.0.2.{number}:9999": certificate(left, Encoding.DER)
        for number, left in enumerate(seconds, 1)
    }
    monkeypatch.setattr(world.balancer, "certificates", lambda: found, raising=False)
    told, whats = check(world)
    assert (told, len(whats)) == (means, bool(says))
    assert all(fits(what, says) for what in whats), whats
    failed = ["certificates"] if says else []
    assert world.run("doctor_pop", "lab1")["failed"] == failed


@pytest.mark.parametrize(
    ("field", "content", "means", "found"),
    [
        # Of authorities the last to end does for all; of ours the first that ends stops a login.
        ("ca_file", TWO, "none of 1 expires within 14d", []),
        (
            *("certificate_file", TWO, "none of 1 expires within 14d"),
            ["the certificate of load_balancer.certificate_file ...own.pem expires in 2d..."],
        ),
        # One that cannot be read is left to its own check.
        ("ca_file", b"no certificate", "", []),
        ("ca_file", b"", "", []),
    ],
    ids=range(4),
)
def test_files_of_the_inventory_are_read(
    tmp_path: Path, field: str, content: bytes, means: str, found: list[str]
) -> None:
    world, document, file = EmptyWorld(tmp_path), inventory_document(), tmp_path / "own.pem"
    entry = {"driver": "haproxy", "address": "tls://127.0.0.1:1", "backend": "edges"}
    document["pops"]["lab1"]["load_balancer"] = {**entry, field: str(file)}
    write_yaml(Path(world.config["inventory"]), document)
    if content:
        file.write_bytes(content)
    assert list(unlike(check(world), [means, found])) == []


@pytest.mark.processes
@pytest.mark.parametrize(("valid", "days"), [("+5d2h", "5d"), ("+30d", ""), ("", "")])
def test_the_certificate_of_the_user_is_read(tmp_path: Path, valid: str, days: str) -> None:
    """By OpenSSH's own tool; one without an end has none to be warned of."""
    authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "id")
    until = ["-V", valid] if valid else []
    keygen("-s", authority, "-I", "ana", "-n", "root", *until, f"{key}.pub")
    means, found = check(EmptyWorld(tmp_path, ssh_key_file=str(key)))
    assert (means == "none of 1 expires within 14d") == bool(valid)
    assert len(found) == bool(days)
    assert not days or f"the user certificate {key}-cert.pub expires in {days}" in found[0]


@pytest.mark.parametrize(
    ("tuning", "kind"), [("accept_queue", "notes"), ("home_snoop", "findings")]
)
@pytest.mark.parametrize(
    ("ca_file", "login", "says"),
    [
        ("/nowhere", "edgetune:secret", ["configuration: bmc_ca_file: /nowhere cannot be used..."]),
        ("", "", ["credentials: lab: found in none of: ..."]),
        ("", "edgetune:secret", []),
    ],
)
def test_what_bmcs_need_fails_only_where_a_tuning_needs_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tuning: str,
    kind: str,
    ca_file: str,
    login: str,
    says: list[str],
) -> None:
    world = EmptyWorld(tmp_path, bmcs=True, bmc_ca_file=ca_file)
    if login:
        monkeypatch.setenv("EDGETUNE_BMC_LAB", login)
    rows: Any = world.run("doctor_pop", "lab1", tuning=tuning)["checks"]
    (own,) = (row for row in rows if row["check"] == "BMCs")
    assert list(unlike([each["what"] for each in own[kind]], says)) == []
    assert len(own["findings"] + own["notes"]) == len(says)


CASES = cases(Path(__file__).with_name("site_mistakes.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    case = yaml.safe_load(yaml.safe_dump(case).replace("FOLDER", str(tmp_path)))
    world = EmptyWorld(tmp_path)
    options = {**world.config, **case.get("options", {})}
    given = {name: value for name, value in options.items() if value is not None}
    (tmp_path / "edgetune.yaml").write_text(yaml.safe_dump(case.get("written", given)))
    monkeypatch.setenv("EDGETUNE_CONFIG", f"{tmp_path}/edgetune.yaml")
    write_inventory(tmp_path, case)
    write_files(tmp_path, case.get("files", {}))
    deny(monkeypatch, {f"{tmp_path}/{name}" for name in case.get("denied", [])})

    context: Any = Context(given)
    context.fleet, context.load_balancer = world.hosts, world.context.load_balancer
    result: Any = shown(doctor_pop(context, "lab1"))
    rows = {row["check"]: row for row in result["checks"]}
    found, notes = (
        {name: [own["what"] for own in row[kind]] for name, row in rows.items() if row[kind]}
        for kind in ("findings", "notes")
    )
    assert list(unlike([found, notes], [case["found"], case.get("notes", {})])) == []
    assert {*found} == {*case["found"]} and [*found] == result["failed"]
    # What hosts are asked with has to be right.
    stops = {"configuration", "source"} & {*found}
    assert bool(stops) == (not world.hosts.asked) == ("the other checks wait" in result["message"])
    advice = [own["advice"] for row in rows.values() for own in row["findings"]]
    assert all(advice) and {case.get("advice", advice[0] if advice else "")} <= {*advice, ""}
    typed = [own.partition("\n")[2] for own in advice if "\n" in own]
    assert typed == case.get("typed", typed)
    assert all(f"\n      {line}" in result["text"] for line in typed)


def write_inventory(folder: Path, case: dict[str, Any]) -> None:
    document: Any = inventory_document()
    document["pops"]["lab1"].update(case.get("pop", {}))
    for name, own in case.get("hosts", {}).items():
        document["pops"]["lab1"]["hosts"][name].update(own)
    write_yaml(folder / "inventory.yaml", document)


def write_files(folder: Path, files: dict[str, Any]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if text is None:
            path.mkdir()
        elif text:
            path.write_text(text, encoding="utf-8")
        else:
            path.unlink()


def deny(monkeypatch: pytest.MonkeyPatch, paths: set[str]) -> None:
    """Root may read everything: the kernel's answer to anybody else is made up."""
    opened = os.open

    def refuse(path: Any, *more: Any, **named: Any) -> int:
        if str(path) in paths:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
