# SPDX-License-Identifier: Apache-2.0
"""The router of an anycast PoP in its network namespace: BIRD hears the hosts, and the kernel
spreads connections over them.

It remembers connections, as L4 balancers do: one that has begun stays with its host as long as the
host announces the address, with the community 65535:0 or without. New ones go to hosts without it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import unix

from . import network
from .layout import ANYCAST, INPUT, LOAD_BALANCER, Address, LabError, Layout

ANSWER_SECONDS = 15.0
START_SECONDS = 30.0
FIRST_TABLE = 100
SETTINGS = {
    "ip_forward": "1",
    # By ports, too: there is one client.
    "fib_multipath_hash_policy": "1",
    "conf/all/send_redirects": "0",
    "conf/eth0/send_redirects": "0",
    "conf/all/rp_filter": "0",
    "conf/eth0/rp_filter": "0",
}
CONFIGURATION = f"""\
router id {LOAD_BALANCER};
protocol device {{ scan time 1; }}
filter hear {{
    if (65535, 0) ~ bgp_community then bgp_local_pref = 0;
    accept;
}}
protocol kernel {{
    merge paths yes limit 64;
    ipv4 {{ import none; export all; }};
}}
"""
HOST = f"""
ipv4 table t_{{name}};
protocol bgp {{name}} {{{{
    local {LOAD_BALANCER} as 65000;
    neighbor {{ip}} as 65001;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    hold time 9;
    ipv4 {{{{ table t_{{name}}; import filter hear; export none; }}}};
}}}}
protocol pipe p_{{name}} {{{{
    table master4;
    peer table t_{{name}};
    import all;
    export none;
}}}}
protocol kernel k_{{name}} {{{{
    kernel table {{table}};
    ipv4 {{{{ table t_{{name}}; import none; export all; }}}};
}}}}
"""
# The mark of a connection is the number of its host's table.
CONNECTIONS = """\
table ip lab {{
    chain before {{
        type filter hook prerouting priority mangle;
        ct state established,related ct direction original meta mark set ct mark
    }}
    chain through {{
        type filter hook forward priority mangle;
        ct state new ct mark set rt ip nexthop map {{ {hosts} }}
    }}
}}
"""


class Router:
    """What stands where other PoPs have a load balancer; each host steers its own traffic."""

    def __init__(self, namespace: int, hosts: Sequence[Address], layout: Layout) -> None:
        self._namespace = namespace
        self._directory = layout.disks / "router"
        self._directory.mkdir()
        self._hosts = [host.name for host in hosts]
        tables = {host.name: FIRST_TABLE + index for index, host in enumerate(hosts)}
        peers = (HOST.format(name=h.name, ip=h.ip, table=tables[h.name]) for h in hosts)
        (self._directory / "bird.conf").write_text(CONFIGURATION + "".join(peers))
        marks = ", ".join(f"{host.ip} : {tables[host.name]}" for host in hosts)
        with network.inside(namespace):
            for name, value in SETTINGS.items():
                Path("/proc/sys/net/ipv4", name).write_text(value)
            network.rules(f"fwmark {table} lookup {table}" for table in tables.values())
            _nft(CONNECTIONS.format(hosts=marks))
            with layout.console("router").open("ab") as log:
                self._process = subprocess.Popen(
                    ["bird", "-f", "-c", "bird.conf", "-s", "bird.ctl", "-P", "bird.pid"],
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        self._wait_until_it_answers()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def fault(self, how: str, number: int = 1) -> None:
        """ "forget": it remembers no connection from now on, and hashes over the hosts (ECMP)."""
        if how != "forget":
            raise LabError(f"the router of an anycast PoP can forget, not {how}", INPUT)
        with network.inside(self._namespace):
            _nft("flush ruleset\n")

    def servers(self) -> dict[str, dict[str, Any]]:
        """{host: {"admin": ready, drain (65535:0) or maint (not announced), "up": bool}}."""
        told = self._paths()
        states = {None: "maint", True: "drain", False: "ready"}
        return {name: {"admin": states[told.get(name)], "up": name in told} for name in self._hosts}

    def unchecked(self) -> list[str] | None:
        """Hosts to which nothing goes, None while BIRD does not answer."""
        try:
            told = self._paths()
        except LabError:
            return None
        return [name for name in self._hosts if told.get(name) is not False]

    def _paths(self) -> dict[str, bool]:
        """By host that announces the address, whether with the community 65535:0."""
        found: dict[str, bool] = {}
        name = ""
        for line in self._ask(f"show route table master4 all {ANYCAST}/32").splitlines():
            if path := re.search(r"\[(\w+) ", line):
                name = path.group(1)
                found[name] = False
            elif name and "BGP.community" in line:
                found[name] = "(65535,0)" in line
        return found

    def _ask(self, command: str) -> str:
        try:
            with unix.connect(self._directory / "bird.ctl", ANSWER_SECONDS) as connection:
                _reply(connection)
                connection.sendall(command.encode() + b"\n")
                return _reply(connection)
        except OSError as error:
            raise LabError(f"the router's BIRD does not answer: {error}") from None

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self._ask("show status")
                return
            except LabError:
                if not self.is_running() or time.monotonic() > end:
                    raise
            time.sleep(0.05)


def _reply(connection: Any) -> str:
    data = b""
    while not re.search(rb"(^|\n)\d{4} [^\n]*\n\Z", data):
        part = connection.recv(65536)
        if not part:
            raise OSError("it has ended")
        data += part
    return data.decode("utf-8", "replace")


def _nft(text: str) -> None:
    done = subprocess.run(["nft", "-f", "-"], input=text, text=True, capture_output=True)
    if done.returncode:
        raise OSError(f"nft: {done.stderr.strip().splitlines()[0]}")
