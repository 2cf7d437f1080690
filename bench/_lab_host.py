# SPDX-License-Identifier: Apache-2.0
"""Hosts of a lab of their own, with twenty sysctls to be set, fifteen of which are as wanted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench._ssh_hosts import Site
from bench._ssh_peers import ssh_options
from bench._table import BenchError
from lab import pop
from lab.pop import kernel
from lab.pop.layout import Layout, addresses

CHANGING = {
    "net.core.somaxconn": ("8", "4096"),
    "net.ipv4.tcp_fin_timeout": ("60", "20"),
    "net.ipv4.tcp_max_syn_backlog": ("128", "8192"),
    "net.ipv4.tcp_rmem": ("4096 131072 6291456", "4096 131072 16777216"),
    "net.ipv4.tcp_slow_start_after_idle": ("1", "0"),
}
"""What the host has at first, and what is wanted."""

KEPT = {
    "net.ipv4.ip_local_port_range": "10240 65535",
    "net.ipv4.tcp_ecn": "2",
    "net.ipv4.tcp_fastopen": "3",
    "net.ipv4.tcp_keepalive_intvl": "30",
    "net.ipv4.tcp_keepalive_probes": "5",
    "net.ipv4.tcp_keepalive_time": "600",
    "net.ipv4.tcp_mtu_probing": "1",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_notsent_lowat": "131072",
    "net.ipv4.tcp_retries2": "8",
    "net.ipv4.tcp_syn_retries": "4",
    "net.ipv4.tcp_synack_retries": "3",
    "net.ipv4.tcp_syncookies": "1",
    "net.ipv4.tcp_tw_reuse": "1",
    "net.ipv4.tcp_wmem": "4096 65536 16777216",
}
"""What is as wanted from the start, now and in a file for the next boot."""

AT_FIRST = {**{key: first for key, (first, _) in CHANGING.items()}, **KEPT}
WANTED = {**{key: wanted for key, (_, wanted) in CHANGING.items()}, **KEPT}
FILE = "/etc/sysctl.d/50-site.conf"
"""The administrator's own file on the host; it holds what is KEPT."""

_CPU_FIELDS = slice(11, 15)  # utime, stime, and those of the children waited for; proc(5)


def sysctl_file(values: Mapping[str, str]) -> str:
    """Lines for sysctl.d(5)."""
    return "".join(f"{key} = {value}\n" for key, value in values.items())


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


class Shell:
    """A shell on the host that stays, so that looking at it costs no login."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._asks, self._answers = process.stdin, process.stdout

    def run(self, commands: str) -> str:
        """What they print, ending in a new line; BenchError if the shell has ended."""
        print(f"{commands}\necho; echo end", file=self._asks, flush=True)
        lines: list[str] = []
        for line in self._answers:
            if line == "end\n":
                return "".join(lines)
            lines.append(line)
        raise BenchError("the shell on the lab host has ended")

    def write(self, file: str, text: str) -> None:
        """Make a file with this content."""
        self.run(f"cat >{file} <<'END'\n{text}END")


@dataclass(frozen=True)
class LabHost:
    """The running host: how to log in, and the shell of the benchmark itself."""

    site: Site
    shell: Shell

    @property
    def address(self) -> str:
        """Its only one."""
        return self.site.addresses[0]

    def reset(self) -> None:
        """Have the first values again, and the file; BenchError where that does not work."""
        self.shell.run("\n".join(f"echo {AT_FIRST[key]} >{_path(key)}" for key in AT_FIRST))
        self.shell.write(FILE, sysctl_file(KEPT))
        self.expect(AT_FIRST)

    def expect(self, wanted: Mapping[str, str]) -> None:
        """BenchError names the first value that is another one."""
        told = self.shell.run(f"cat {' '.join(map(_path, wanted))}").strip().splitlines()
        for (key, value), line in zip(wanted.items(), told):
            if line.split() != value.split():
                raise BenchError(f"{key} is {line}, not {value}")


@contextlib.contextmanager
def lab_hosts(count: int) -> Iterator[list[LabHost]]:
    """A lab with so many hosts while the context lasts; this thread is on its network then.

    BenchError where a lab cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as name:
        home = Path(name)
        try:
            pop.up(home, hosts=count, load=False)
        except pop.LabError as error:
            raise BenchError(str(error)) from None
        try:
            with kernel.own_namespaces_kept(net=kernel.NEW_NET), contextlib.ExitStack() as stack:
                pop.enter_controller(home)
                found = [
                    LabHost(*stack.enter_context(_shell(Layout(home), address.ip)))
                    for address in addresses(count)
                ]
                for host in found:
                    host.reset()
                yield found
        finally:
            pop.down(home)


@contextlib.contextmanager
def _shell(layout: Layout, address: str) -> Iterator[tuple[Site, Shell]]:
    def cpu_seconds() -> float:
        """Of all processes there are, and of all they have waited for."""
        stats = filter(None, shell.run("cat /proc/[0-9]*/stat 2>/dev/null").splitlines())
        rows = [line.rpartition(")")[2].split()[_CPU_FIELDS] for line in stats]
        return sum(int(ticks) for row in rows for ticks in row) / os.sysconf("SC_CLK_TCK")

    site = Site((address,), 22, "root", layout.lab, cpu_seconds)
    process = subprocess.Popen(
        ["ssh", *ssh_options(site), site.addresses[0], "sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    shell = Shell(process)
    try:
        yield site, shell
    finally:
        process.communicate()
