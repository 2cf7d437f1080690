# SPDX-License-Identifier: Apache-2.0
"""`edgetune lab`: a PoP to practise on, and what else has to know whether one is up."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from lab.pop.layout import FAILED, PROMETHEUS, REFUSED, shared
from lab.runner.ending import command
from lab.usage import UsageError, home

__all__ = ["add_lab_commands", "enter_lab"]

# The actions that read records alone: they tell of a lab that is down as well.
_OF_RECORDS = frozenset(
    {
        *("rollout_status", "report_rollout", "show_verdict", "effects", "export_metrics"),
        *("campaign_status", "report_campaign", "congestion_report"),
    }
)
_UP = "edgetune lab up"
_QUERY = f"edgetune lab exec promtool query instant http://{PROMETHEUS} up"
_WATCHED = f"{_UP} --prometheus"
# Fewer cannot be split in as many ways as the usual alphas ask for.
_FEWEST = 6
_ANYCAST = f"{_UP} --anycast"
_FREEBSD = f"{_UP} --simulated --freebsd 8"
_APPLICATION = f"{_UP} --application"
_BOTH = f"{_UP} --balancers 2"
_MACHINES = f"{_UP} --hosts 4 --machines 2"


def add_lab_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="build the PoP and put it under load")
    up.add_argument("--hosts", type=int, default=8, metavar="N", help="default: 8")
    up.add_argument(
        "--pops", type=int, default=1, metavar="N", help="that share the hosts; default: 1"
    )
    up.add_argument("--no-load", action="store_true", help="without a client that makes requests")
    up.add_argument("--simulated", action="store_true", help="without root: hosts are processes")
    up.add_argument(
        "--freebsd",
        type=int,
        default=0,
        metavar="N",
        help="of the simulated hosts have FreeBSD (experimental)",
    )
    up.add_argument(
        "--release",
        type=lambda text: text.split(","),
        metavar="N[,N]",
        help="of FreeBSD, 13 or 14; with 13,14 hosts have one or the other in turn; default: 14",
    )
    up.add_argument(
        "--post-seconds", type=float, default=0.0, metavar="N", help="of firmware in each reboot"
    )
    up.add_argument(
        "--prometheus",
        action="store_true",
        help="with Prometheus, Alertmanager, and node_exporter on each host",
    )
    up.add_argument(
        "--machines",
        type=int,
        default=0,
        metavar="N",
        help="of the hosts are virtual machines, with a boot loader, systemd and network cards",
    )
    up.add_argument(
        "--anycast",
        action="store_true",
        help="no load balancer: hosts announce one address to a router by BIRD",
    )
    up.add_argument(
        "--balancers",
        type=int,
        default=1,
        metavar="N",
        help="HAProxies, 1 or 2, that send requests to the hosts; default: 1",
    )
    up.add_argument(
        "--application",
        action="store_true",
        help="nginx of each host has an application behind it, which clients ask, too",
    )
    up.set_defaults(command=_lab_up)
    image = commands.add_parser("image", help="build the disk of machines, and say where it is")
    image.set_defaults(command=_lab_image)
    commands.add_parser("down", help="take it down").set_defaults(command=_lab_down)
    commands.add_parser("status", help="show it").set_defaults(command=_lab_status)
    execute = commands.add_parser("exec", help="run a command where the PoP can be reached")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    execute.set_defaults(command=_lab_exec)
    _add_fault_commands(commands)


def _add_fault_commands(commands: Any) -> None:
    console = commands.add_parser("console", help="run a command on a host, network or not")
    console.add_argument("host", metavar="HOST")
    console.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    console.set_defaults(command=_lab_console)
    fault = commands.add_parser("fault", help="break something: a cable, disk, host, program, BMC")
    fault.add_argument("fault", metavar="FAULT", help="one that does not exist lists them")
    fault.add_argument("target", metavar="TARGET", help="a host, a port, or what to do")
    fault.set_defaults(command=_lab_fault)
    heal = commands.add_parser("heal", help="undo all that was broken")
    heal.set_defaults(command=_lab_heal)


def enter_lab(config: dict[str, Any], action: str = "") -> None:
    """Where a lab of namespaces is up, its hosts are reached only from inside of it.

    Where it is not up any more, its addresses are those of strangers: only what reads nothing but
    records goes on.
    """
    kind, is_of_lab = _lab_kind(), config.get("inventory") == str(home() / "lab/inventory.yaml")
    if kind == "namespaces":
        _lab("namespaces", "enter_controller")
    elif kind is None and is_of_lab and action not in _OF_RECORDS:
        raise UsageError("the lab of this configuration is not up", _UP, REFUSED)


def _lab_kind() -> str | None:
    """`namespaces`, `simulated`, or None when no lab is up."""
    kind = _recorded_kind()
    return kind if kind and _lab(kind, "status") is not None else None


def _recorded_kind() -> str | None:
    """Of the lab that was built last; it may not have survived."""
    file = home() / "lab" / "state.json"
    if not file.exists():
        return None
    try:
        kind: str = json.loads(file.read_text(encoding="utf-8"))["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: not the state of a lab: {error!r}") from error
    return kind


def _lab(kind: str, function: str, **arguments: Any) -> Any:
    """Call a function of the lab of that kind; what it raises on purpose becomes one line."""
    module = import_module("lab.simulated" if kind == "simulated" else "lab.pop")
    try:
        return getattr(module, function)(home(), **arguments)
    except getattr(module, "LabError", ()) as error:
        raise UsageError(str(error), "edgetune lab status", error.reason) from error


def _lab_up(options: argparse.Namespace) -> int:
    given = {"hosts": options.hosts, "pops": options.pops, "post_seconds": options.post_seconds}
    given["stays"] = True
    if options.simulated and options.prometheus:
        raise UsageError("simulated hosts have no kernel to export, Linux hosts have", _WATCHED)
    if options.simulated and options.machines:
        raise UsageError("machines stand beside Linux hosts, not simulated ones", _MACHINES)
    if options.simulated and options.anycast:
        raise UsageError("simulated hosts announce nothing, Linux hosts do", _ANYCAST)
    if options.freebsd and not options.simulated:
        raise UsageError("Linux hosts have no FreeBSD, simulated hosts can", _FREEBSD)
    if options.release and not options.freebsd:
        raise UsageError("a release is that of hosts with FreeBSD", f"{_FREEBSD} --release 13,14")
    if options.simulated and options.application:
        raise UsageError("simulated hosts run no application, Linux hosts can", _APPLICATION)
    if options.simulated and options.balancers != 1:
        raise UsageError("simulated hosts have one load balancer", _BOTH)
    if options.simulated:
        own = {"releases": options.release} if options.release else {}
        print(_greeting(_lab("simulated", "up", freebsd=options.freebsd, **own, **given), options))
        return 0
    given.update(prometheus=options.prometheus, machines=options.machines, tell=_tell)
    given.update(anycast=options.anycast, balancers=options.balancers)
    given.update(application=options.application)
    missing = import_module("lab.pop").missing_requirements(
        options.prometheus, options.machines > 0, options.anycast
    )
    if missing:
        needs = f"a lab of namespaces needs {', '.join(missing)}"
        raise UsageError(f"{needs}; simulated hosts do not", f"{_UP} --simulated", REFUSED)
    print(_greeting(_lab("namespaces", "up", load=not options.no_load, **given), options))
    return 0


def _greeting(state: dict[str, Any], options: argparse.Namespace) -> str:
    """What is up, and what to try next, in five lines of 80 columns; in six with Prometheus."""
    hosts = [host["name"] for host in state["hosts"]]
    pops = list(shared(hosts, options.pops))
    kind = "simulated" if state["kind"] == "simulated" else "Linux"
    virtual = f"{options.machines} virtual, " if options.machines else ""
    virtual = f"{options.freebsd} with FreeBSD, " if options.freebsd else virtual
    load = "with no load" if options.no_load else "under load"
    load += ", and Prometheus" if options.prometheus else ""
    up = "are up" if len(pops) > 1 else "is up"
    dry_run = "a dry run" if len(hosts) // len(pops) >= _FEWEST else f"needs {_FEWEST} hosts a PoP"
    noun = "hosts" if len(hosts) > 1 else "host"
    which = command("diagnose_hosts", pop=pops[0])
    tuning, only = _first_try(options, len(hosts))
    plan = command("rollout_pop", pop=pops[0], tuning=tuning)
    if only:
        plan = command("rollout_pop", pop=pops[0], tuning=tuning, only=only)
    return "\n".join(
        [
            f"{_span(pops)} {up}: {len(hosts)} {kind} {noun}, {_span(hosts)}, {virtual}{load}",
            "Until `edgetune lab down` takes the lab away, try:",
            f"  {which:54}  # what would help",
            f"  {plan}" if only else f"  {plan:54}  # {dry_run}",
            *([f"  {_QUERY}"] if options.prometheus else []),
            "  edgetune status",
        ]
    )


def _first_try(options: argparse.Namespace, hosts: int) -> tuple[str, str]:
    """A tuning, and the rack of the hosts that it is for, "" for all: FreeBSD 13 has no RACK."""
    if not options.freebsd:
        return "accept_queue", ""
    releases = {*(options.release or ["14"])}
    tuning = "oca_network" if "14" in releases else "tiny_socket_queue"
    if len(releases) > 1:
        return tuning, "freebsd14"
    return tuning, "" if options.freebsd == hosts else "freebsd"


def _span(names: Sequence[str]) -> str:
    """One or two names, or the first and the last of several."""
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


def _tell(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


def _lab_image(options: argparse.Namespace) -> int:
    """The path alone on standard output."""
    try:
        print(import_module("lab.machines").Image().build(_tell))
    except OSError as error:
        raise UsageError(str(error), "edgetune lab image", FAILED) from error
    return 0


def _lab_down(options: argparse.Namespace) -> int:
    was_up = _lab(_recorded_kind() or "namespaces", "down")
    print("the lab is down" if was_up else "no lab was up")
    return 0


def _lab_status(options: argparse.Namespace) -> int:
    kind = _lab_kind()
    if kind is None:
        print("no lab is up")
        return 1
    _print_lab(_lab(kind, "status"))
    return 0


def _print_lab(state: dict[str, Any]) -> None:
    yaml: Any = import_module("yaml")
    print(yaml.safe_dump(json.loads(json.dumps(state, default=str)), sort_keys=False), end="")


def _lab_exec(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("lab exec needs a command", "edgetune lab exec --help")
    if _lab_kind() is None:
        raise UsageError("no lab is up", _UP, REFUSED)
    enter_lab({})
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}") from error


def _lab_console(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("lab console needs a command", "edgetune lab console --help")
    print(_faulty_lab("console", host=options.host, command=argv), end="")
    return 0


def _lab_fault(options: argparse.Namespace) -> int:
    _faulty_lab("inject", fault=options.fault, target=options.target)
    return 0


def _lab_heal(options: argparse.Namespace) -> int:
    _faulty_lab("heal")
    return 0


def _faulty_lab(function: str, **arguments: Any) -> Any:
    """Only real hosts can be broken."""
    kind = _lab_kind()
    if kind == "simulated":
        told = "simulated hosts cannot be broken, Linux hosts can"
        raise UsageError(told, "edgetune lab down", REFUSED)
    if kind is None:
        raise UsageError("no lab of namespaces is up", _UP, REFUSED)
    return _lab("namespaces", function, **arguments)
