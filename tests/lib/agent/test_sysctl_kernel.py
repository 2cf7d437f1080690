# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel, on a real one: what comes back, what a boot leaves, what is shown."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from edgetune.agent.change import restore_settings, set_now
from edgetune.agent.host import Host
from edgetune.agent.journal import Entry
from edgetune.agent.kinds import handler_on
from edgetune.agent.kinds.sysctl import Sysctl
from edgetune.agent.observe import observe
from edgetune.agent.protocol import AgentError
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from tests.support.agent_root import NearRoot, sysctl
from tests.support.kernel_namespace import NET, in_namespace, needs_namespaces

pytestmark = [pytest.mark.lab, needs_namespaces]

Tree = dict[str, str]
BATCH = 25
REFUSED = KINDS["sysctl"].target["key"].refusal
ROUTES = ("ip -o address", "ip route show table all", "ip -6 route show table all")


def tree(host: NearRoot) -> Tree:
    """What every parameter of the namespace shows, but counters."""
    top = f"{host.path}/proc/sys/"
    found = [f"{path}/{name}" for path, _, names in os.walk(top + "net") for name in names]
    names = [name[len(top) :] for name in found]
    return {name: shown(top + name) for name in sorted(names) if not name.endswith("_count")}


def shown(file: str) -> str:
    """What one call reads: a second one shows some parameters again."""
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.read(4096).decode()
    except OSError as error:
        return str(error.strerror)


def addresses() -> list[str]:
    lines: list[str] = []
    for command in ROUTES:
        told = subprocess.run(command.split(), capture_output=True, text=True, check=True)
        lines += told.stdout.splitlines()
    return sorted(lines)


def others(text: str) -> Iterator[str]:
    """Values that a parameter may take instead."""
    words = text.split()
    if re.fullmatch("-?[0-9]+", text.strip()):
        number = int(text)
        yield from ["1"] if number == 0 else ["0", str(number + 1), str(max(number - 1, 1)), "2"]
    elif words and all(re.fullmatch("-?[0-9]+", word) for word in words):
        yield " ".join(str(int(word) + 1) for word in words)
        yield " ".join(str(max(int(word) - 1, 0)) for word in words)
    else:
        yield from ("reno", "8443,8080-8082", "1")


def oppose(host: NearRoot) -> None:
    """Let v0 have the opposite of what `all` and `default` have, where that is 0 or 1."""
    for family in ("ipv4", "ipv6"):
        top = host.path / NET / family / "conf"
        for file in sorted((top / "all").iterdir()):
            if not REFUSED(f"net/{family}/conf/v0/{file.name}"):
                with contextlib.suppress(OSError):
                    text = file.read_text()
                    if text in ("0\n", "1\n"):
                        (top / "v0" / file.name).write_text(f"{1 - int(text)}\n")


def there_and_back(host: Host, key: str) -> list[str]:
    """Set a parameter and take it back, as the agent does; what went wrong, or "left alone"."""
    handler = handler_on(host, "sysctl")
    for value in others(host.text(f"/proc/sys/{key}")):
        setting = Setting("sysctl", {"key": key}, value, None, None)
        row = observe(host, setting, "t", stored=False)
        if row.problem or not row.runtime_differs:
            continue
        snapshot = handler.snapshot(setting.target)
        entry = Entry(row.to_be_set, value, row.reading, snapshot, True, False)
        problems: list[str] = []
        taken = True
        try:
            set_now(host, entry)
        except AgentError:
            taken = False
        restore_settings(host, [entry], problems)
        if taken:
            return problems
    return ["left alone"]


def batches(host: NearRoot) -> list[list[str]]:
    """The parameters that can be written and that no tuning is refused."""
    # Those of lo and v1 are as those of v0.
    keys = [
        key
        for key in tree(host)
        if not re.search("/(lo|v1)/", key) and not REFUSED(key)
        if os.access(host.path / "proc/sys" / key, os.W_OK)
    ]
    return [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]


def sweep(host: NearRoot) -> dict[str, Any]:
    oppose(host)
    inside, told = Host(str(host.path)), {}
    routes, before = addresses(), tree(host)
    for keys in batches(host):
        told.update((key, there_and_back(inside, key)) for key in keys)
        after = tree(host)
        left = {name: [was, after[name]] for name, was in before.items() if was != after[name]}
        if left:
            told[f"one of {keys}"] = [str(left)]
        before = after
    return {"told": told, "routes": [routes, addresses()]}


def test_each_parameter_of_a_namespace_is_taken_back_with_all_that_it_changed() -> None:
    found = in_namespace(sweep)
    told = found["told"]
    tried = {key for key, problems in told.items() if problems != ["left alone"]}
    assert {key: told[key] for key in tried if told[key]} == {}
    assert len(tried) > 200 and len(tried) > 0.9 * len(told), set(told) - tried
    assert found["routes"][0] == found["routes"][1]


NAMES = [
    f"net/ipv4/neigh/{card}/{name}"
    for card in ("lo", "v0", "v1")
    for name in ("app_solicit", "mcast_solicit", "proxy_qlen")
]
PATTERNS = [
    "net.ipv4.neigh.*.app_solicit",
    "net/ipv4/neigh/v?/*_solicit",
    "net.ipv*.neigh.v[01].proxy_qlen",
    "net/ipv4/neigh/v[^0]/*",
    "net.*.neigh.{lo,v1}.app_solicit",
    "net.ipv4.neigh.{v0,v1}.app_solicit",
    "net.ipv4.neigh.?.*",
]
VALUES = ["5", "6", " 7 ", "0x10", "010", "8 # why", "9\t2", '"5"', "x", ""]
DIRECTORIES = [f"{top}/sysctl.d" for top in ("etc", "run", "usr/local/lib", "usr/lib")]
SYSTEMD_SYSCTL = os.environ.get("EDGETUNE_SYSTEMD_SYSCTL", "/usr/lib/systemd/systemd-sysctl")
UNSET = "77"


def a_line(chance: random.Random) -> str:
    name = path = chance.choice(NAMES + PATTERNS)
    if "/" in path:
        doubled = path.replace("/", "//", 1)
        name = chance.choice([path, path.replace("/", "."), f"/{path}", doubled, f"{path}/"])
    # No pattern has a value that the kernel refuses: what stood before would stay.
    value = chance.choice(VALUES if path in NAMES else VALUES[:7])
    before, between = chance.choice(["", " ", "\t"]), chance.choice(["", " "])
    plain, out = f"{before}{name}{between}={between}{value}", f"{before}-{between}{name}"
    odd = [f"{before}-{name}={value}", f"{before}#{name}={value}", f"; {name} = {value}"]
    odd += [f"--{name}={value}", name, f"={value}", ""]
    return chance.choice([*[plain] * 6, out, out, *odd])


def a_tree(chance: random.Random) -> dict[str, str | None]:
    """Files of sysctl.d with their text; a link to /dev/null where there is none."""
    files: dict[str, str | None] = {}
    for _ in range(chance.randint(2, 7)):
        name = chance.choice(["10-a.conf", "50-b.conf", "99-c.conf", ".70-d.conf", "80-e.bak"])
        lines = [a_line(chance) for _ in range(chance.randint(1, 8))]
        text = chance.choice(["\n", "\n", "\r\n"]).join(lines)
        files[f"{chance.choice(DIRECTORIES)}/{name}"] = chance.choice([text, text, text, None])
    return files


def compare(host: NearRoot) -> list[Any]:
    """What a boot leaves otherwise than we say, with the files that make it so."""
    chance, kind = random.Random(40), Sysctl(Host(str(host.path)))
    wrong, decided = [], 0
    for _ in range(120):
        for directory in DIRECTORIES:
            for file in (host.path / directory).iterdir():
                file.unlink()
        files = a_tree(chance)
        for name, text in files.items():
            if text is None:
                (host.path / name).symlink_to("/dev/null")
            else:
                (host.path / name).write_bytes(text.encode())
        for path in NAMES:
            (host.path / "proc/sys" / path).write_text(UNSET)
        subprocess.run([SYSTEMD_SYSCTL], stderr=subprocess.DEVNULL, check=False)
        for path in NAMES:
            left, winner = host.read(f"proc/sys/{path}").strip(), kind.winner(path)
            # A value that is no number is refused by the kernel, and said as it stands.
            said = winner.value if winner and winner.value.isdigit() else UNSET
            decided += left != UNSET
            if left != said:
                wrong.append([path, left, said, files])
    return [decided, wrong]


@pytest.mark.skipif(
    not os.access(SYSTEMD_SYSCTL, os.X_OK),
    reason="needs systemd-sysctl, which EDGETUNE_SYSTEMD_SYSCTL may name",
)
def test_files_of_sysctl_d_leave_what_systemd_sysctl_leaves() -> None:
    decided, wrong = in_namespace(compare)
    assert wrong[:3] == [] and decided > 200


SHOWN = [
    ("net.ipv4.ip_local_reserved_ports", "8443,8080-8082", "8080-8082,8443"),
    ("net.ipv6.icmp.ratemask", "3-5,1,2", "1-5"),
    ("net.core.somaxconn", "0x10", "16"),
    ("net.ipv4.tcp_syn_retries", "010", "8"),
    ("net.ipv4.tcp_rmem", "4096\t0x20000  06000000", "4096 131072 1572864"),
    ("net.core.rps_default_mask", "00000001", "1"),
]


def set_all(host: NearRoot) -> list[Any]:
    """How each parameter of `SHOWN` stands, what our file keeps, and whether all comes back."""
    before, wanted = tree(host), [sysctl(written, key) for key, written, _ in SHOWN]
    host.apply(*wanted)
    rows = host.plan(*wanted)
    kept = "".join(file.read_text() for file in host.path.glob("etc/sysctl.d/90-*"))
    verified = host.ask("verify", tuning="t", settings=wanted)["verified"]
    host.restore()
    told = [[row["runtime"], row["persistent"], row["status"]] for row in rows]
    return [told, kept, verified, tree(host) == before]


def test_what_the_kernel_made_of_a_value_is_what_was_wanted() -> None:
    told, kept, verified, is_back = in_namespace(set_all)
    assert told == [[shown, shown, "noop"] for _, _, shown in SHOWN]
    assert kept.splitlines()[1:] == [f"{key} = {shown}" for key, _, shown in SHOWN]
    assert verified and is_back
