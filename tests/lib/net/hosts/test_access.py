# SPDX-License-Identifier: Apache-2.0
"""Access as sites grant it, by real sshd: jump hosts, certificates, agents, pins, IPv6."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from edgetune.base.errors import InputError
from edgetune.net.hosts import connection
from edgetune.net.hosts.certificates import check_host
from tests.support.programs import needs_ipv6
from tests.support.real_sshd import SSHD, USER, Sshd, ask, ask_one, fleet, keygen, make_key, public
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not SSHD, reason="these tests need openssh-server"),
]
Start = Callable[..., Sshd]
FOREVER = ("-h",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_key(tmp_path / "id")
    (tmp_path / "known_hosts").write_text("")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts a server and knows its key, unless it is not to be ``known`` or shows a certificate
    of an authority for some names, which ``signed`` says more of."""
    begun: list[Sshd] = []

    def starting(
        *options: str,
        known: bool = True,
        address: str = "127.0.0.1",
        ca: Path | None = None,
        names: str = "127.0.0.1",
        signed: tuple[str, ...] = FOREVER,
    ) -> Sshd:
        begun.append(Sshd(folder, *options, address=address))
        if ca:
            begun[-1].options.append(sign_host(ca, begun[-1], *signed, names=names))
        elif known:
            with (folder / "known_hosts").open("a") as file:
                file.write(begun[-1].known)
        return begun[-1].start()

    yield starting
    for server in begun:
        server.close()


# Jump hosts.


def test_hosts_are_reached_by_one_connection_to_their_jump_host(folder: Path, start: Start) -> None:
    jump, end = start(), start()
    hosts = [end.host(f"e{i:03d}", jump=f"{USER}@{jump.address}:{jump.port}") for i in range(5)]
    assert [each.error for each in ask(folder, hosts, ssh_threads=3)] == [None] * 5
    assert (jump.logins, end.logins) == (1, 5)
    assert fleet(folder).lost_connections(hosts[:1], [1]) == {}
    assert (jump.logins, end.logins) == (2, 21)


def test_the_keys_of_a_jump_host_and_of_hosts_behind_it_are_verified_before_anything_else(
    folder: Path, start: Start
) -> None:
    jump, end, other = start(known=False), start(), make_key(folder / "other")
    name = f"127.0.0.1:{jump.port}"

    def said(known: str) -> str:
        (folder / "known_hosts").write_text(known)
        return ask_one(folder, end.host(jump=name))

    wrong = f"127.0.0.1: its jump host {name}: its SSH host key is not"
    assert said(end.known) == f"{wrong} in known_hosts"
    its_own = f"{jump.known_as} {public(other)}\n"
    assert said(f"{end.known}{its_own}") == f"{wrong} the one in known_hosts"
    assert (jump.logins, end.log.count("Connection from")) == (0, 0)
    wrong = "127.0.0.1: its SSH host key is not the one in known_hosts"
    assert said(f"{jump.known}{end.known_as} {public(jump.key)}\n") == wrong
    assert end.logins == 0


def test_a_jump_host_that_does_not_let_through_is_named(folder: Path, start: Start) -> None:
    jump, end = start("AllowTcpForwarding no"), start()
    name = f"127.0.0.1:{jump.port}"
    said = f"its jump host {name} does not reach it: Administratively prohibited"
    assert said in ask_one(folder, end.host(jump=name))
    other = start()
    nobody = replace(end.host(jump=f"127.0.0.1:{other.port}"), address="127.0.0.9", port=9)
    (folder / "known_hosts").write_text(f"{other.known}[127.0.0.9]:9 {public(end.key)}\n")
    said = f"127.0.0.9: its jump host 127.0.0.1:{other.port} does not reach it: Connect failed"
    assert ask_one(folder, nobody) == said


def test_a_dead_jump_host_costs_its_hosts_one_timeout_together(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FAILED", 60)
    end = start()
    with socket.create_server(("127.0.0.2", 0)) as mute:
        name = f"127.0.0.2:{mute.getsockname()[1]}"
        (folder / "known_hosts").write_text(f"[127.0.0.2]:* {public(end.key)}\n{end.known}")
        hosts = [end.host(f"e{i:03d}", jump=name) for i in range(12)]
        began = time.monotonic()
        told = ask(folder, hosts, ssh_threads=3, ssh_timeout=3)
    (said,) = {each.error for each in told}
    assert str(said).startswith(f"127.0.0.1: its jump host {name}: ")
    assert time.monotonic() - began < 4 * 3


def test_a_jump_host_that_comes_back_is_asked_again(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FAILED", 0.1)
    jump, end = start(), start()
    jump.close()
    own = fleet(folder)
    host = end.host(jump=f"127.0.0.1:{jump.port}")

    def request(each: object) -> dict[str, object]:
        asked.append(None)
        if len(asked) == 2:
            jump.start()
        return {}

    asked: list[None] = []
    assert own.ask([host], "facts", request, 60, patience=60)["e000"].error is None
    assert len(asked) == 2


# Certificates of users.


def authority(folder: Path, type: str = "ed25519") -> Path:
    return make_key(folder / f"authority-{type}", type)


def sign_user(ca: Path, key: Path, valid: str = "-5m:+5m", *more: str) -> Path:
    """The certificate beside the key."""
    keygen("-s", ca, "-I", "test", "-n", USER, "-V", valid, *more, f"{key}.pub")
    return key.with_name(f"{key.name}-cert.pub")


@pytest.mark.parametrize("type", ["ed25519", "ecdsa", "rsa"])
def test_a_certificate_logs_in_with_a_key_of_each_type(
    folder: Path, start: Start, type: str
) -> None:
    ca, key = authority(folder), make_key(folder / type, type)
    server = start(f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none")
    given = {"ssh_key_file": str(key)}
    assert ask_one(folder, server.host(), **given) == "127.0.0.1: Authentication failed."
    beside = sign_user(ca, key)
    assert ask_one(folder, server.host(), **given) == ""
    apart = beside.rename(folder / "apart")
    assert ask_one(folder, server.host(), **given, ssh_certificate_file=str(apart)) == ""
    assert server.logins == 2 and "CERT" in server.log


def test_a_certificate_is_read_anew_for_each_call(folder: Path, start: Start) -> None:
    ca, other = authority(folder), make_key(folder / "other")
    server = start(f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none")
    sign_user(other, folder / "id")
    own = fleet(folder)
    asking = lambda: own.ask([server.host()], "facts", lambda host: {}, 60)["e000"]  # noqa: E731
    assert asking().error == "127.0.0.1: Authentication failed."
    sign_user(ca, folder / "id")
    assert asking().error is None
    sign_user(ca, folder / "id", "20200101:20200102")
    with pytest.raises(InputError, match="expired on 2020-01-02"):
        asking()
    assert server.logins == 1


def test_a_certificate_that_cannot_log_in_is_named_before_any_host_is_asked(folder: Path) -> None:
    ca, file = authority(folder), folder / "id-cert.pub"
    other = sign_user(ca, make_key(folder / "other"))

    def signed(*valid: str) -> bytes:
        return sign_user(ca, folder / "id", *valid).read_bytes()

    unreadable = "is no certificate of OpenSSH that can be read"
    cut = other.read_bytes().split()
    cut[1] = cut[1][:80]
    for content, says in (
        (signed("20200101000000Z:20200102000000Z"), "expired on 2020-01-02 00:00:00 UTC"),
        (signed("21000101000000Z:21000102000000Z"), "is not valid before 2100-01-01 00:00:00 UTC"),
        (signed("-1m:+5m", "-h"), "is the certificate of a host, and not of a user"),
        (other.read_bytes(), "is not for the key of ssh_key_file"),
        ((folder / "id.pub").read_bytes(), "is a public key, and no certificate"),
        (b"", unreadable),
        (b"\xff" * 100, unreadable),
        (b" ".join(cut), unreadable),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError) as caught:
            fleet(folder)
        assert str(caught.value) == f"configuration: ssh_certificate_file: {file}: {says}"
    with pytest.raises(InputError, match="ssh_certificate_file: cannot be read: .*No such file"):
        fleet(folder, ssh_certificate_file=str(folder / "none"))


# Certificates of hosts. OpenSSH itself says what is to be trusted.


def sign_host(ca: Path, server: Sshd, *more: str, names: str = "127.0.0.1") -> str:
    """The option of sshd that shows the certificate."""
    principals = ["-n", names] if names else []
    keygen("-s", ca, "-I", "test", *more, *principals, f"{server.key}.pub")
    return f"HostCertificate {server.key}-cert.pub"


def trusted_by_openssh(folder: Path, server: Sshd) -> bool:
    options = (
        f"UserKnownHostsFile={folder}/known_hosts GlobalKnownHostsFile=/dev/null BatchMode=yes"
        f" StrictHostKeyChecking=yes IdentityFile={folder}/id IdentityAgent=none ConnectTimeout=60"
    )
    words = [word for own in options.split() for word in ("-o", own)]
    command = ["ssh", "-F", "none", *words, "-p", str(server.port), f"{USER}@127.0.0.1", "x"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


OK, NO = "", "its SSH host certificate "
CASES: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    # What ssh-keygen is told, the names, what known_hosts has besides, and what is said.
    "one of its names": (FOREVER, "e000,127.0.0.1", "", OK),
    "by RSA": (FOREVER, "127.0.0.1", "", OK),
    "by ECDSA": (FOREVER, "127.0.0.1", "", OK),
    "a pattern of names": (FOREVER, "127.0.0.?,*", "", "is for '127.0.0.?', '*', and not for 1"),
    "another name": (FOREVER, "127.0.0.2", "", "is for '127.0.0.2', and not for 127.0.0.1"),
    "nobody": (FOREVER, "", "", "is for no name, and not for 127.0.0.1"),
    "expired": (("-h", "-V", "20200101:20200102"), "127.0.0.1", "", "expired on 2020-01-0"),
    "not yet": (("-h", "-V", "21000101:21000102"), "127.0.0.1", "", "is not valid before 2"),
    "a user's": (("-O", "clear"), "127.0.0.1", "", "is the certificate of a user"),
    "SHA-1": (("-h", "-t", "ssh-rsa"), "127.0.0.1", "", "has a signature that does not hold"),
    "revoked authority": (FOREVER, "127.0.0.1", "@revoked * {ca}\n", "is by an authority that is"),
    "its own key too": (("-h", "-V", "20200101:20200102"), "127.0.0.2", "{own}", OK),
}


@pytest.mark.parametrize("case", CASES)
def test_openssh_and_we_trust_the_same_certificates(folder: Path, start: Start, case: str) -> None:
    keygen_says, names, besides, says = CASES[case]
    ca = authority(
        folder, {"SHA-1": "rsa", "by RSA": "rsa", "by ECDSA": "ecdsa"}.get(case, "ed25519")
    )
    server = start(ca=ca, signed=keygen_says, names=names)
    lines = f"@cert-authority {server.known_as} {public(ca)}\n"
    besides = besides.format(ca=public(ca), own=server.known)
    (folder / "known_hosts").write_text(lines + besides)
    told = ask_one(folder, server.host())
    assert told.startswith(f"127.0.0.1: {NO}{says}" if says else "")
    assert bool(told) == bool(says)
    # A key that is known in itself is trusted without its certificate, and one that names nobody by
    # OpenSSH before 10 for every host.
    if case not in ("its own key too", "nobody"):
        assert trusted_by_openssh(folder, server) == (not says)


def test_another_authority_is_not_that_of_the_host(folder: Path, start: Start) -> None:
    ca, other = authority(folder), make_key(folder / "other")
    server, known = start(ca=ca), folder / "known_hosts"
    known.write_text(f"@cert-authority * {public(other)}\n")
    assert "is not by a @cert-authority that known_hosts has" in ask_one(folder, server.host())
    known.write_text(f"@cert-authority 10.* {public(ca)}\n")
    assert "its SSH host key is not in known_hosts" in ask_one(folder, server.host())
    known.write_text(f"@cert-authority * {public(ca)}\n@revoked * {public(server.key)}\n")
    assert "its SSH host key is revoked in known_hosts" in ask_one(folder, server.host())
    assert not trusted_by_openssh(folder, server)
    known.write_text(f"@cert-authority * {public(ca)}\n")
    plain = start(known=False)
    assert "and it shows no certificate" in ask_one(folder, plain.host())
    assert (server.logins, plain.logins) == (0, 0)


def test_a_certificate_with_any_other_byte_proves_nothing(folder: Path) -> None:
    ca, key = authority(folder), make_key(folder / "host")
    keygen("-s", ca, "-I", "test", "-h", "-n", "127.0.0.1", f"{key}.pub")
    whole = base64.b64decode(public(folder / "host-cert").split()[1])
    own, known = (base64.b64decode(public(each).split()[1]) for each in (key, ca))

    def check(blob: bytes, key: bytes = own) -> None:
        check_host(blob, key, "127.0.0.1", {known}, set())

    check(whole)
    with pytest.raises(ValueError, match="is for another key"):
        check(whole, known)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        with pytest.raises(ValueError):
            check(bytes(changed))
        with pytest.raises(ValueError):
            check(whole[:place])


def test_certificates_and_known_hosts_may_have_an_alias_of_a_host(
    folder: Path, start: Start
) -> None:
    ca, known = authority(folder), folder / "known_hosts"
    server = start(ca=ca, names="e000.example.org")
    host, other = (server.host(host_key_alias=f"{own}.example.org") for own in ("E000", "E001"))
    known.write_text(f"@cert-authority *.example.org {public(ca)}\n")
    assert ask_one(folder, host) == ""
    assert "is for 'e000.example.org', and not for e001.example.org" in ask_one(folder, other)
    known.write_text(f"e000.example.org {public(server.key)}\n")
    assert ask_one(folder, host) == ""
    assert "is not in known_hosts" in ask_one(folder, server.host())


# Keys in the inventory.


def test_a_key_in_the_inventory_is_the_only_one(folder: Path, start: Start) -> None:
    server, other = start(known=False), make_key(folder / "other")
    pinned = server.host(host_keys=(public(other), public(server.key)))
    assert ask_one(folder, pinned) == ""
    (folder / "known_hosts").write_text(server.known)
    wrong = server.host(host_keys=(public(other),))
    said = "127.0.0.1: its SSH host key is not the one in the inventory"
    assert ask_one(folder, wrong) == said
    (folder / "known_hosts").write_text(f"@revoked * {public(server.key)}\n")
    assert "is revoked in known_hosts" in ask_one(folder, pinned)
    assert server.logins == 1


# Agents.


@pytest.fixture
def agent(folder: Path) -> Iterator[Path]:
    """A real ssh-agent that holds the key; what the folder has is the public one alone."""
    path = folder / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    wait_until(path.exists)
    add(path, make_key(folder / "another"))
    add(path, folder / "id")
    (folder / "id").unlink()
    yield path
    process.terminate()
    process.wait(60)


def add(agent: Path, *words: object) -> None:
    command = ["ssh-add", "-q", *map(str, words)]
    subprocess.run(command, check=True, env={**os.environ, "SSH_AUTH_SOCK": str(agent)})


def test_an_agent_signs_for_the_one_key_or_certificate_that_is_named(
    folder: Path, start: Start, agent: Path
) -> None:
    server, ca = start(), authority(folder)
    given = {"ssh_agent": str(agent), "ssh_key_file": str(folder / "id.pub")}
    hosts = [server.host(f"e{i:03d}") for i in range(8)]
    assert [each.error for each in ask(folder, hosts, **given)] == [None] * 8
    assert (server.log.count("Failed publickey"), server.logins) == (0, 8)
    by_certificate = start(f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none")
    sign_user(ca, folder / "id")
    assert ask_one(folder, by_certificate.host(), **given) == ""


def test_an_agent_without_the_key_is_named_before_any_host_is_asked(
    folder: Path, agent: Path
) -> None:
    key, third = folder / "id.pub", make_key(folder / "third")
    certificate = sign_user(authority(folder), folder / "id")

    def refusal(key: Path = key, agent: Path = agent) -> str:
        with pytest.raises(InputError) as caught:
            fleet(folder, ssh_agent=str(agent), ssh_key_file=str(key), ssh_timeout=1)
        return str(caught.value).replace(str(folder), "FOLDER").removeprefix("configuration: ")

    of_key, of_agent = "ssh_key_file: FOLDER/", "ssh_agent: FOLDER/"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "silent"))
        silent.listen()
        said = f"{of_agent}silent: its whole answer did not come in time"
        assert refusal(agent=folder / "silent") == said
    said = f"{of_agent}agent: does not hold the key of ssh_key_file, but 2 others"
    assert refusal(third.with_suffix(".pub")) == said
    assert refusal(third).startswith(f"{of_key}third: must be the public key")
    said = f"{of_key}id-cert.pub: is a certificate; give the public key"
    assert refusal(certificate).startswith(said)
    assert refusal(agent=folder / "none") == f"{of_agent}none: No such file or directory"
    add(agent, "-D")
    assert refusal() == f"{of_agent}agent: holds no keys; it may be locked"


@needs_ipv6
def test_hosts_and_jump_hosts_have_ipv6_addresses(folder: Path, start: Start) -> None:
    jump, end = start(address="::1"), start(address="::1")
    host = replace(end.host(), address="0:0::0001")
    assert ask_one(folder, host) == ""
    assert ask_one(folder, replace(host, jump=f"{USER}@[::1]:{jump.port}")) == ""
    assert (jump.logins, end.logins) == (1, 2)
