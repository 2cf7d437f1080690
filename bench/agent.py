# SPDX-License-Identifier: Apache-2.0
"""One change of one host: edgetune's apply and its peers, side by side on a host of the lab.

Every side is asked for the same 20 sysctls, 5 of which differ while 15 are as wanted. After each
run all 20 are read from the host and must be as wanted; then the host is set back, and both are
not measured. Orders are shuffled, figures are medians over the rounds, and a ratio is between
two runs of one round. Everything goes over the sshd of the host, over a new connection.

Measured: wall clock, and CPU on the host. The time that Fleet takes to be imported is in the row
"a process of its own" only; that of ssh and ansible-playbook to start is in.
The controller and the host share this machine's CPUs, and the network between them is a veth.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from bench import _apply_peers
from bench._apply_peers import Apply, Edgetune, end_shared_connections
from bench._lab_host import CHANGING, WANTED, LabHost, lab_host
from bench._ssh_peers import has_program, ssh_version
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

FLEET = "edgetune Fleet, apply"
HEADERS = ["client", "ms (median, min..max)", "ratio to Fleet", "host CPU ms"]
DIFFERENCES = {
    "edgetune": "sets what differs; keeps all 20 over a boot and proves it; before that it writes "
    "down what was there, durably, and arms a timer that takes it back unless it is confirmed",
    "sysctl -p": "writes all 20; nothing is kept over a boot, what was there before is lost",
    "tuned": "writes all 20, once; nothing is taken back without its daemon, nor set at a boot",
    "ansible": "sets what differs and keeps it over a boot; what was there before is lost",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument(
        "--tuned", type=Path, metavar="DIRECTORY", help="tuned's Debian packages, unpacked"
    )
    chosen, rounds = count_chosen(parser, arguments, "rounds", 7, quick=2)
    return carry_out("agent", chosen, lambda: run(rounds, chosen.tuned), show)


def run(rounds: int, tuned: Path | None) -> dict[str, Any]:
    """Measure; BenchError if a side fails, or does not do all of its work."""
    with lab_host() as host:
        edgetune = Edgetune(host)

        def settle(name: str) -> None:
            try:
                host.expect(WANTED)
            except BenchError as error:
                raise BenchError(f"{name}: {error}") from None
            end_shared_connections(host.site)
            edgetune.take_back()
            host.reset()

        peers = own_peers(host, edgetune)
        for name, peer in peers.items():
            peer()  # what is loaded once only is loaded now
            settle(name)
        further, left_out = further_peers(host, tuned, settle)
        peers.update(further)
        samples = measure(peers, rounds, host.site.cpu_seconds, settle)
    return {
        "benchmark": "agent",
        "settings": {"all": len(WANTED), "changed": len(CHANGING)},
        "rounds": rounds,
        "versions": {"python": platform.python_version(), "OpenSSH": ssh_version()},
        "differences": DIFFERENCES,
        "left_out": left_out,
        "figures": [figure(name, samples) for name in peers],
    }


def own_peers(host: LabHost, edgetune: Edgetune) -> dict[str, Apply]:
    """What can be compared wherever there is a lab; it must work."""
    return {
        FLEET: edgetune.apply,
        "edgetune Fleet, apply and confirm": edgetune.apply_and_confirm,
        "edgetune, a process of its own": edgetune.apply_in_a_process,
        "edgetune's agent over OpenSSH": edgetune.apply_over_openssh,
        "sysctl -p over OpenSSH": _apply_peers.sysctl(host),
    }


def further_peers(
    host: LabHost, tuned: Path | None, settle: Callable[[str], None]
) -> tuple[dict[str, Apply], dict[str, str]]:
    """Those that may be there, and why each of the others is left out."""
    peers: dict[str, Apply] = {}
    left_out: dict[str, str] = {}
    for name, (missing, make) in _further(tuned).items():
        try:
            if missing:
                raise BenchError(missing)
            peer = make(host)
            peer()
            settle(name)
            peers[name] = peer
        except BenchError as error:
            left_out[name] = str(error)
    return peers, left_out


def _further(tuned: Path | None) -> dict[str, tuple[str, Callable[[LabHost], Apply]]]:
    no_tuned = "" if tuned or has_program("tuned") else "not installed, and no --tuned"
    no_ansible = "" if has_program("ansible-playbook") else "not installed"
    ansible = _apply_peers.ansible
    return {
        "tuned over OpenSSH": (no_tuned, functools.partial(_apply_peers.tuned, packages=tuned)),
        "ansible, a file and sysctl -p": (
            no_ansible,
            functools.partial(ansible, tasks=_apply_peers.ONE_FILE),
        ),
        "ansible, a loop": (no_ansible, functools.partial(ansible, tasks=_apply_peers.LOOP)),
        "ansible, 20 tasks": (no_ansible, functools.partial(ansible, tasks=_apply_peers.TASKS)),
    }


def figure(name: str, samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """One side's row: ms, ratio of its time to Fleet's, CPU of the host in ms."""
    own = samples[name]
    return {
        "client": name,
        "ms": spread(1000 * sample.wall for sample in own),
        "ratio": spread(sample.wall / base.wall for base, sample in zip(samples[FLEET], own)),
        "host_cpu_ms": spread(1000 * sample.other_cpu for sample in own),
    }


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    counts = "{all} sysctls, {changed} to change".format(**document["settings"])
    print(f"bench.agent: {counts}, {document['rounds']} rounds; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))
    for name, what in document["differences"].items():
        print(f"{name}: {what}")
    print_left_out(document)


def _row(found: Mapping[str, Any]) -> list[str]:
    return [
        found["client"],
        told(found["ms"]),
        f"{found['ratio']['median']:.2f}",
        f"{found['host_cpu_ms']['median']:.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
