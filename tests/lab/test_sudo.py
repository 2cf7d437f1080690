# SPDX-License-Identifier: Apache-2.0
"""A user that may run one command by real sudo, on a host of the lab, as docs/how-to/access.md."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.agent import bundle
from lab import pop
from lab.pop.faults import console
from tests.lab.test_pop import entering, inside
from tests.support import ROOT
from tests.support.waiting import wait_until

MISSING = [*pop.missing_requirements(), *([] if shutil.which("sudo") else ["sudo"])]
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(MISSING), reason=f"this test needs {', '.join(MISSING)}"),
]
HOST, ADDRESS, PORT = "e000", "10.77.1.1", 2222
COMMAND = "sudo -n /usr/local/sbin/edgetune-agent"
KEY = "net.core.somaxconn"
# The user as a site has it: no shell for anything of root's but by the one line of sudoers.
SITE = f"""
echo 'edgetune:x:900:900::/home/edgetune:/bin/sh' >>/etc/passwd
echo 'edgetune:*:19000::::::' >>/etc/shadow
echo 'edgetune:x:900:' >>/etc/group
mkdir -p /etc/pam.d /etc/sudoers.d /home/edgetune /etc/ssh/keys
cp /root/.ssh/authorized_keys /etc/ssh/keys/edgetune
printf 'account required pam_permit.so\\nsession required pam_permit.so\\n' >/etc/pam.d/sudo
printf 'auth required pam_deny.so\\n' >>/etc/pam.d/sudo
printf 'Defaults env_reset\\n@includedir /etc/sudoers.d\\n' >/etc/sudoers
chmod 440 /etc/sudoers /etc/sudoers.d/edgetune
visudo -cq
cd /etc/ssh
sed 's|^AuthorizedKeysFile.*|AuthorizedKeysFile /etc/ssh/keys/%u|' sshd_config >site
/usr/sbin/sshd -f /etc/ssh/site -p {PORT}
"""
ASK = """
import dataclasses, json, sys
from edgetune.site.config import read_config
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.inventory import Host

given = json.load(sys.stdin)
host = Host("e000", *given["place"], "", "", "e000")
asked = Fleet(read_config(given["config"])).ask([host], given["verb"], lambda own: given["request"])
print(json.dumps(dataclasses.asdict(asked["e000"])))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("lab")
    pop.up(home, hosts=2, load=False)
    shipped = ROOT / "deploy" / "sudo"
    for name, path, mode in (
        ("edgetune-agent", "/usr/local/sbin/edgetune-agent", "755"),
        ("sudoers", "/etc/sudoers.d/edgetune", "440"),
    ):
        install = f"mkdir -p {Path(path).parent}; cat >{path}; chmod {mode} {path}"
        console(home, HOST, ["sh", "-ec", install], (shipped / name).read_bytes())
    digest = hashlib.sha256(bundle.make()).hexdigest()
    console(home, HOST, ["sh", "-ec", f"echo {digest} >/etc/edgetune-agents\n{SITE}"])
    known = home / "lab" / "known_hosts"
    line = next(line for line in known.read_text().splitlines() if line.startswith(f"{ADDRESS} "))
    known.write_text(f"{known.read_text()}[{ADDRESS}]:{PORT} {line.partition(' ')[2]}\n")
    yield home
    pop.down(home)


def question(home: Path, verb: str, request: Mapping[str, Any], **more: Any) -> bytes:
    own = yaml.safe_load((home / "edgetune.yaml").read_text())
    config = {**own, "ssh_user": "edgetune", "ssh_command": COMMAND, **more}
    document = {"config": config, "place": [ADDRESS, PORT], "verb": verb, "request": request}
    return json.dumps(document).encode()


def asking(home: Path) -> list[str]:
    return entering(home, "env", f"PYTHONPATH={ROOT / 'lib'}", sys.executable, "-c", ASK)


def ask(home: Path, verb: str, request: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    done = subprocess.run(
        asking(home), input=question(home, verb, request, **more), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def ssh(home: Path, command: str) -> subprocess.CompletedProcess[str]:
    """A command as that user, on the site's sshd."""
    words = ["-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={home}/lab/known_hosts"]
    where = ["-i", f"{home}/lab/id_ed25519", "-p", str(PORT), f"edgetune@{ADDRESS}"]
    return inside(home, "ssh", *words, *where, command)


def now(home: Path) -> str:
    return console(home, HOST, ["cat", "/proc/sys/net/core/somaxconn"]).strip()


SETTINGS = [
    {"id": f"sysctl:{KEY}", "kind": "sysctl", "target": {"key": KEY}, "value": "8192"},
]


def apply_request(home: Path, settings: Sequence[Mapping[str, Any]] = SETTINGS) -> dict[str, Any]:
    request = {"tuning": "t", "digest": "sha256:t", "settings": settings}
    planned = ask(home, "plan", request)
    assert planned["error"] is None
    rows = {row["id"]: row for row in planned["data"]["settings"]}
    expect = {
        id: {name: row[name] for name in ("runtime", "persistent")} for id, row in rows.items()
    }
    return {**request, "epoch": 1, "rollout": "r", "expect": expect, "confirm_within": 120}


def test_a_tuning_comes_and_goes_by_sudo(home: Path) -> None:
    before = now(home)
    request = apply_request(home)
    applied = ask(home, "apply", request)
    assert (applied["error"], now(home)) == (None, "8192")
    # sudo keeps what tells the agent its other end: the connections through it are watched.
    journal = json.loads(console(home, HOST, ["cat", "/var/lib/edgetune/tunings/t.json"]))
    assert "client" in journal["answering"].values()
    verify = {"tuning": "t", "digest": "sha256:t", "settings": SETTINGS}
    verified = ask(home, "verify", verify)
    assert verified["error"] is None
    restored = ask(home, "restore", {"epoch": 1, "tuning": "t"})
    assert (restored["error"], now(home)) == (None, before)


def test_nothing_else_may_be_run(home: Path) -> None:
    for command in ("id", "python3 -c 0", "sh", "/usr/local/sbin/edgetune-agent x", "-u nobody id"):
        done = ssh(home, f"sudo -n {command} </dev/null")
        assert (done.returncode, done.stdout) == (1, ""), command
        assert "a password is required" in done.stderr
    listed = ssh(home, "sudo -n -l").stdout
    assert listed.count("NOPASSWD") == 1
    assert '(root) NOPASSWD: /usr/local/sbin/edgetune-agent ""' in listed
    assert ssh(home, "cat /etc/shadow").returncode == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"ssh_command": "sudo -n /usr/bin/id"}, "it is empty: sudo: a password is required"),
        ({"ssh_command": "sudo -n /no/such"}, "it is empty: sudo: a password is required"),
        ({"ssh_command": "/no/such"}, "it is empty: sh: 1: /no/such: not found"),
    ],
)
def test_what_sudo_refuses_is_told_of_that_host(
    home: Path, more: dict[str, Any], says: str
) -> None:
    result = ask(home, "facts", {}, **more)
    assert (result["error"], result["reason"]) == (f"answer to facts: {says}", "garbage")


def test_an_agent_that_the_host_does_not_know_is_not_run(home: Path) -> None:
    console(home, HOST, ["sh", "-ec", "cd /etc; mv edgetune-agents x; touch edgetune-agents"])
    try:
        result = ask(home, "facts", {})
    finally:
        console(home, HOST, ["mv", "/etc/x", "/etc/edgetune-agents"])
    said = "answer to facts: it is empty: this agent is not one of /etc/edgetune-agents"
    assert (result["error"], result["reason"]) == (said, "garbage")


def agents(home: Path) -> str:
    """Those that run below sudo."""
    return console(home, HOST, ["sh", "-c", "pgrep -f '[p]ython3 -IS /usr/local' || :"])


@pytest.mark.parametrize("seconds", [0.6, 1.2])
def test_a_controller_that_dies_leaves_nothing_half_done(home: Path, seconds: float) -> None:
    """The agent goes on to its end below sudo, or undoes; either way its journal says so."""
    before = now(home)
    request = question(home, "apply", apply_request(home))
    with subprocess.Popen(
        asking(home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as asked:
        assert asked.stdin
        asked.stdin.write(request)
        asked.stdin.close()
        time.sleep(seconds)
        asked.kill()
    wait_until(lambda: not agents(home), "an end of the agent")
    standing = "test -e /var/lib/edgetune/tunings/t.json && echo yes || :"
    there = console(home, HOST, ["sh", "-c", standing]).strip()
    assert now(home) == ("8192" if there else before)
    assert ask(home, "restore", {"epoch": 1, "tuning": "t"})["error"] is None
    assert now(home) == before
