# SPDX-License-Identifier: Apache-2.0
"""The SSH files of the configuration: what OpenSSH makes of them, and what would be dangerous."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import paramiko
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.base.errors import InputError
from edgetune.net.hosts.known_hosts import KnownHosts
from edgetune.net.hosts.ssh_files import load_key, load_known_hosts
from tests.support.examples import examples

ED = asyncssh.generate_private_key("ssh-ed25519")
OTHER = asyncssh.generate_private_key("ssh-ed25519")
EC = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
ADDRESS = "10.0.0.1"


def public(key: asyncssh.SSHKey) -> str:
    """Type and key, as they stand in known_hosts."""
    return key.export_public_key().decode().strip()


def shown(key: asyncssh.SSHKey) -> paramiko.PKey:
    """The key as paramiko has it of a server."""
    type, text = public(key).split()[:2]
    return paramiko.pkey.PKey.from_type_string(type, base64.b64decode(text))


def is_trusted(text: str | bytes, key: asyncssh.SSHKey, address: str, port: int = 22) -> bool:
    """Whether a host with this address may show that key."""
    known = KnownHosts(text if isinstance(text, bytes) else text.encode())
    try:
        known.keys_of(address, port).missing_host_key(paramiko.SSHClient(), address, shown(key))
    except paramiko.SSHException:
        return False
    return True


def found_by_openssh(file: Path, name: str) -> bool:
    """Whether ssh-keygen finds a line for a name."""
    command = ["ssh-keygen", "-F", name, "-f", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


NAMES = ["10.0.0.1", "10.0.0.10", "edge1.example.net", "2001:db8::1"]
NAMES += [f"[{name}]:2222" for name in NAMES if name != "10.0.0.10"]
PATTERNS = "10.0.0.? 10.0.0.* * *.example.net *.example.net,!edge1.example.net !edge1.example.net"
PATTERNS += " !edge1.example.net,* !10.0.0.1,10.0.0.1 [10.0.0.1]:* [10.0.0.*]:2222 [*]:2222"
PATTERNS += " [1]0.0.0.1 EDGE1.example.NET a,,b *,"


@pytest.mark.processes
@pytest.mark.parametrize("names", [*NAMES, ",".join(NAMES), *PATTERNS.split()])
def test_names_are_matched_as_openssh_matches_them(tmp_path: Path, names: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{names} {public(ED)}\n")

    def ours() -> dict[str, bool]:
        return {name: is_trusted(file.read_bytes(), ED, *_split(name)) for name in NAMES}

    found = {name: found_by_openssh(file, name) for name in NAMES}
    assert ours() == found
    # It hashes names, and no patterns.
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert names not in NAMES or names.encode() not in file.read_bytes()
    assert ours() == found


def _split(name: str) -> tuple[str, int]:
    address, bracket, port = name[1:].rpartition("]:") if name.startswith("[") else (name, "", "22")
    return address, int(port)


@pytest.mark.processes
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text("ab.*?![]:", min_size=1, max_size=6), min_size=1, max_size=3),
    st.text("ab.", min_size=1, max_size=4),
)
def test_any_pattern_is_matched_as_openssh_matches_it(
    tmp_path: Path, patterns: Sequence[str], name: str
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{','.join(patterns)} {public(ED)}\n")
    assert is_trusted(file.read_bytes(), ED, name) == found_by_openssh(file, name)


STRANGE = ["# B\xfccher", "", "b\xfccher\xa0x ssh-ed25519 AAAA"]
STRANGE += [f"\t{ADDRESS}\t{public(ED)} J\xfcrgen"]
ONE, TWO = f"{ADDRESS} {public(ED)}\n", f"{ADDRESS} {public(OTHER)}\n"
REVOKED = [f"@revoked {names} {public(ED)}\n" for names in (ADDRESS, "*", "10.0.0.9", "|1|AA|AA")]


@pytest.mark.parametrize(
    ("text", "trusted"),
    [
        (ONE + TWO, [ED, OTHER]),
        # A revoked key is trusted for no host.
        *((revoked + ONE + TWO, [OTHER]) for revoked in REVOKED),
        *((ONE + revoked + TWO, [OTHER]) for revoked in REVOKED),
        # An authority is no key of a host.
        (f"@cert-authority 10.0.0.* {public(ED)}\n", []),
        (f"@cert-authority 10.0.0.* {public(ED)}\n{TWO}", [OTHER]),
        # Comments, tabs and bytes of any encoding are passed over.
        *((end.join(STRANGE).encode("latin-1"), [ED]) for end in ("\n", "\r\n")),
    ],
)
def test_each_key_of_a_host_is_trusted_and_no_other(
    text: str | bytes, trusted: list[asyncssh.SSHKey]
) -> None:
    keys = [ED, OTHER, EC, asyncssh.generate_private_key("ssh-ed25519")]
    assert [key for key in keys if is_trusted(text, key, ADDRESS)] == trusted


OF_22 = "not in known_hosts; write [10.0.0.1]:2222 where it is named without its port"
UNKNOWN = "its SSH host key is not in known_hosts"
NO_KEY = "line 1: is no public key of the type 'ssh-ed25519'"


@pytest.mark.parametrize(
    ("text", "port", "says"),
    [
        (ONE, 2222, f"its SSH host key is {OF_22}"),
        ("", 22, UNKNOWN),
        (f"{ADDRESS}\n", 22, "known_hosts: its keys are of unusable types: ''"),
        (f"{ADDRESS} ssh-dss AAAAB3NzaC1kc3M=\n", 22, "are of unusable types: 'ssh-dss'"),
        (f"{ADDRESS} 1024 35 1234\n", 22, "its keys are of unusable types: '1024'"),
        (f"{ADDRESS} ssh-ed25519 @@@\n", 22, NO_KEY),
        (f"{ADDRESS} ssh-ed25519\n", 22, NO_KEY),
        (f"{ADDRESS} ssh-rsa AAAAC3NzaC1lZDI1NTE5\n", 22, "line 1: is no public key of the type"),
        ("|1|@|@ ssh-ed25519 AAAA\n|1|a ssh-ed25519 AAAA\n", 22, UNKNOWN),
    ],
    ids=range(9),
)
def test_a_line_of_no_use_is_named_for_its_host_alone(text: str, port: int, says: str) -> None:
    with pytest.raises(paramiko.SSHException) as caught:
        KnownHosts(text.encode()).keys_of(ADDRESS, port)
    assert says in str(caught.value)
    assert is_trusted(f"{text}10.0.0.2 {public(ED)}\n", ED, "10.0.0.2")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("@revoked * ssh-ed25519 AAAA", "line 2: is no public key of the type 'ssh-ed25519'"),
        ("@revoked *", "line 2: is no public key of the type ''"),
        ("@revokd * ssh-ed25519 AAAA", "line 2: '@revokd' is no marker"),
    ],
)
def test_a_marker_that_cannot_be_obeyed_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# ours\n{line}\n")
    with pytest.raises(InputError) as caught:
        load_known_hosts(file)
    assert str(caught.value) == f"configuration: ssh_known_hosts: {file}: {says}"


@examples(300)
@given(st.binary(max_size=200))
def test_any_bytes_are_known_hosts_or_refused_by_line(data: bytes) -> None:
    try:
        lines = (data, b"@revoked " + data, f"{ADDRESS} ".encode() + data)
        KnownHosts(b"\n".join(lines)).keys_of(ADDRESS, 22)
    except (ValueError, paramiko.SSHException) as error:
        assert len(str(error)) < 300
        assert "\n" not in str(error)


@pytest.mark.parametrize("hashed", [False, True])
def test_the_keys_of_20_000_hosts_are_read_in_two_seconds(tmp_path: Path, hashed: bool) -> None:
    names = [f"10.1.{i // 250}.{i % 250}" for i in range(20_000)]
    lines = [paramiko.HostKeys.hash_host(name) if hashed else name for name in names]
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{line} {public(ED)}\n" for line in lines))
    started = time.process_time()
    known = load_known_hosts(file)
    for name in names[:3] * 10:
        known.keys_of(name, 22)
    assert time.process_time() - started < 2


# The private key.


@pytest.mark.processes
@pytest.mark.parametrize("format", ["RFC4716", "PEM"])
@pytest.mark.parametrize("type", ["ed25519", "ecdsa", "rsa"])
def test_a_key_of_every_usable_type_is_read(tmp_path: Path, type: str, format: str) -> None:
    command = ["ssh-keygen", "-q", "-N", "", "-t", type, "-m", format, "-f", str(tmp_path / "id")]
    subprocess.run(command, check=True, capture_output=True)
    public_key = (tmp_path / "id.pub").read_text().split()[1]
    assert load_key(tmp_path / "id").get_base64() == public_key


UNUSABLE = "is no private key without a passphrase, of type ed25519, ECDSA or RSA"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (ED.export_private_key(), "others can read it; chmod 600 it"),
        # Made where it is needed: to make it takes long on purpose.
        (partial(ED.export_private_key, "openssh", passphrase="secret", rounds=50), UNUSABLE),
        (EC.export_private_key("pkcs8-pem", passphrase="secret"), UNUSABLE),
        (asyncssh.generate_private_key("ssh-ed448").export_private_key("openssh"), UNUSABLE),
        (ED.export_private_key("openssh")[:150], UNUSABLE),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", UNUSABLE),
        (b"PRIVATE KEY \xff\xfe", UNUSABLE),
        (ED.export_public_key(), "holds no private key; the public key is for ssh_agent"),
        (b"", "holds no private key"),
        (b"hunter2\xff", "holds no private key"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_usable_key_is_named(tmp_path: Path, data: Any, says: str) -> None:
    file = tmp_path / "id"
    file.write_bytes(data() if callable(data) else data)
    file.chmod(0o640 if "chmod" in says else 0o600)
    with pytest.raises(InputError) as caught:
        load_key(file)
    assert str(caught.value) == f"configuration: ssh_key_file: {file}: {says}"


@pytest.mark.parametrize("load", [load_key, load_known_hosts])
def test_what_is_no_file_is_named_at_once(tmp_path: Path, load: Callable[..., object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, says in (
        (tmp_path / "pipe", "is no regular file"),
        (tmp_path, "is no regular file"),
        (tmp_path / "none", "No such file"),
        (Path("/dev/zero"), "is no regular file"),
        (Path("a\0b"), "null byte"),
    ):
        with pytest.raises(InputError, match=f"configuration: ssh_.*: cannot be read: .*{says}"):
            load(path)
