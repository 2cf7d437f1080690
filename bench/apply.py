# SPDX-License-Identifier: Apache-2.0
"""Twenty settings on many hosts, applied and verified: edgetune's Fleet and its peers.

Every side is asked for the same 20 sysctls on all hosts of a lab, 5 of which differ, and has to
look at all of them afterwards. 16 hosts are asked at once. After each run the benchmark reads all
20 from each host, and sets the hosts back; neither is measured.

* edgetune: one connection to apply and one to confirm, each with the agent;
* ansible, a file and sysctl -p: one play as an expert would write it, and a task that compares;
* ansible, a loop: ansible.posix.sysctl over 20 keys, and the same task;
* pyinfra: server.sysctl for 20 keys, and a command that compares.

Measured: wall clock, CPU of the controller (this process and the programs it starts), and CPU of
the hosts. The hosts are namespaces of this machine, so they take CPU away from the clients: the
last column says how fast a side would be that had its hosts elsewhere, on as many cores as here.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from bench._apply_peers import (
    CONFIRM_WITHIN,
    LOOP,
    ONE_FILE,
    SETTINGS,
    TUNING,
    ansible_tasks,
    end_shared_connections,
)
from bench._lab_host import CHANGING, FILE, WANTED, LabHost, lab_hosts
from bench._ssh_peers import PARALLEL, has_program, pyinfra_inventory, run_program, ssh_version
from bench._table import (
    BenchError,
    Sample,
    carry_out,
    compared,
    count_chosen,
    measure,
    options,
    print_left_out,
    print_table,
    spread,
    told,
)
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

FLEET = "edgetune Fleet, apply and confirm"
MOST = 64
HEADERS = [
    "client",
    "hosts/s (median, min..max)",
    "Fleet's is so many times that",
    "controller CPU ms/host",
    "host CPU ms/host",
    "hosts/s by the controller's CPU",
]
Work = Callable[[], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--rounds", type=int, metavar="N", help="3, or 1 with --quick")
    chosen, count = count_chosen(parser, arguments, "hosts", 16, quick=2, most=MOST)
    rounds = chosen.rounds or (1 if chosen.quick else 3)
    return carry_out("apply", chosen, lambda: run(count, rounds), show)


def run(count: int, rounds: int) -> dict[str, Any]:
    """Measure; BenchError if a side fails, or does not do all of its work."""
    with lab_hosts(count) as hosts:
        edgetune = Edgetune(hosts)

        def settle(name: str) -> None:
            for host in hosts:
                try:
                    host.expect(WANTED)
                except BenchError as error:
                    raise BenchError(f"{name}: {host.address}: {error}") from None
            end_shared_connections(hosts[0].site)
            edgetune.take_back()
            for host in hosts:
                host.reset()

        peers: dict[str, Work] = {FLEET: edgetune.apply}
        edgetune.apply()  # what is loaded once only is loaded now
        settle(FLEET)
        further, left_out = _further(hosts)
        peers.update(further)
        load = os.getloadavg()[0]
        samples = measure(peers, rounds, lambda: _cpu_seconds(hosts), settle)
    return {
        "benchmark": "apply",
        "hosts": count,
        "settings": {"all": len(WANTED), "changed": len(CHANGING)},
        "rounds": rounds,
        "load": load,
        "versions": {"python": platform.python_version(), "OpenSSH": ssh_version()},
        "left_out": left_out,
        "figures": [figure(name, samples, count) for name in peers],
    }


def _cpu_seconds(hosts: Sequence[LabHost]) -> float:
    return sum(host.site.cpu_seconds() for host in hosts)


def _further(hosts: Sequence[LabHost]) -> tuple[dict[str, Work], dict[str, str]]:
    """The sides that may be there, and why each of the others is left out."""
    peers: dict[str, Work] = {}
    left_out: dict[str, str] = {}
    if has_program("ansible-playbook"):
        for way in ("a file and sysctl -p", "a loop"):
            peers[f"ansible, {way}"] = ansible(hosts, way)
    else:
        left_out["ansible"] = "not installed"
    if has_program("pyinfra"):
        peers["pyinfra, server.sysctl"] = pyinfra(hosts)
    else:
        left_out["pyinfra"] = "not installed"
    return peers, left_out


class Edgetune:
    """edgetune on all hosts, which has planned beforehand."""

    def __init__(self, hosts: Sequence[LabHost]) -> None:
        self._hosts = [
            Host(host.address, host.address, host.site.port, "", "", host.address) for host in hosts
        ]
        site = hosts[0].site
        self._config = read_config(
            {
                "inventory": "none",
                "ssh_user": site.user,
                "ssh_key_file": str(site.key),
                "ssh_known_hosts": str(site.known_hosts),
                "ssh_threads": PARALLEL,
            }
        )
        planned = self._ask("plan", {**TUNING, "settings": SETTINGS})
        facts = ("runtime", "persistent")
        self._requests = {
            name: {
                **TUNING,
                "epoch": 1,
                "rollout": "bench",
                "settings": SETTINGS,
                "expect": {row["id"]: {n: row[n] for n in facts} for row in own["settings"]},
                "confirm_within": CONFIRM_WITHIN,
            }
            for name, own in planned.items()
        }

    def apply(self) -> None:
        """As two steps of a rollout do it."""
        fleet = Fleet(self._config)
        self._told(fleet.ask(self._hosts, "apply", lambda host: self._requests[host.name]))
        own = {**TUNING, "epoch": 1, "settings": SETTINGS}
        confirmed = self._told(fleet.ask(self._hosts, "confirm", lambda host: own))
        if not all(each["confirmed"] for each in confirmed.values()):
            raise BenchError("edgetune: not confirmed")

    def take_back(self) -> None:
        """Undo the tuning where it stands."""
        self._ask("restore", {"epoch": 1, "tuning": TUNING["tuning"]})

    def _ask(self, verb: str, request: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        return self._told(Fleet(self._config).ask(self._hosts, verb, lambda host: request))

    def _told(self, results: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        for result in results.values():
            if result.failed:
                raise BenchError(f"edgetune: {result.error}")
        return {name: result.data for name, result in results.items()}


def ansible(hosts: Sequence[LabHost], way: str) -> Work:
    """One play over all hosts, without facts, with pipelining."""
    folder = hosts[0].site.folder
    keys = " ".join(WANTED)
    compare = {
        "ansible.builtin.command": f"sysctl -n {keys}",
        "register": "seen",
        "changed_when": False,
        "failed_when": "seen.stdout.replace('\\t', ' ').splitlines() != wanted",
        "vars": {"wanted": [*WANTED.values()]},
    }
    environment, command = ansible_tasks(hosts, [*_tasks(way), compare], way.replace(" ", "-"))
    return lambda: run_program([*command, "-f", str(PARALLEL)], folder, environment)


def _tasks(way: str) -> list[dict[str, Any]]:
    return LOOP if way == "a loop" else ONE_FILE


def pyinfra(hosts: Sequence[LabHost]) -> Work:
    """One deploy over all hosts."""
    site = hosts[0].site
    folder = site.folder
    inventory = pyinfra_inventory(site, [host.address for host in hosts])
    wanted = {key: _number(value) for key, value in WANTED.items()}
    tests = "; ".join(
        f'test "$(echo $(cat /proc/sys/{key.replace(".", "/")}))" = "{value}" || exit 1'
        for key, value in WANTED.items()
    )
    (folder / "pyinfra_deploy.py").write_text(
        "from pyinfra.operations import server\n"
        f"for key, value in {wanted!r}.items():\n"
        f"    server.sysctl(key=key, value=value, persist=True, persist_file={FILE!r})\n"
        f"server.shell(commands=[{tests!r}])\n"
    )
    words = ["-y", "--parallel", str(PARALLEL), str(inventory), "pyinfra_deploy.py"]
    return lambda: run_program(["pyinfra", *words], folder, {"LC_ALL": "C.UTF-8"})


def _number(value: str) -> object:
    """As pyinfra compares: numbers, one or several."""
    parts = [int(part) for part in value.split()]
    return parts[0] if len(parts) == 1 else parts


def figure(name: str, samples: Mapping[str, Sequence[Sample]], count: int) -> dict[str, Any]:
    """One side's row."""
    own = samples[name]
    cpu = spread(1000 * sample.cpu / count for sample in own)
    cores = 1 if name == FLEET else len(os.sched_getaffinity(0))
    return {
        "client": name,
        "hosts_per_s": spread(count / sample.wall for sample in own),
        "times": spread(sample.wall / base.wall for base, sample in zip(samples[FLEET], own)),
        "controller_cpu_ms": cpu,
        "host_cpu_ms": spread(1000 * sample.other_cpu / count for sample in own),
        "by_cpu": cores * 1000 / cpu["median"],
    }


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    counts = "{hosts} hosts, {rounds} rounds, load {load:.1f}".format(**document)
    settings = "{all} sysctls, {changed} to change".format(**document["settings"])
    print(f"bench.apply: {counts}, {settings}; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))
    print_left_out(document)


def _row(found: Mapping[str, Any]) -> list[str]:
    rate = found["hosts_per_s"]
    return [
        found["client"],
        f"{rate['median']:.2g}, {rate['min']:.2g}..{rate['max']:.2g}",
        told(found["times"]),
        f"{found['controller_cpu_ms']['median']:.0f}",
        f"{found['host_cpu_ms']['median']:.0f}",
        f"{found['by_cpu']:.2g}",
    ]


if __name__ == "__main__":
    sys.exit(main())
