# SPDX-License-Identifier: Apache-2.0
"""All BMCs of a lab in one process, driven by lines of JSON.

Started as `python -E -s -S -m lab.bmc.process OPTIONS`, a JSON document:
    certificate, key, password_file   paths; the user is `username` ("edgetune")
    hosts             [{"name", "personality", "address", "port" (443; 0: any)}]
    listen            one address for all of them ("0.0.0.0" in a network namespace of their own);
                      without it each host's own address is listened on
    post_seconds      duration of POST of a machine that is not driven (0)
    driven            whether POST begins and ends by the lines below (true)
On standard output it says {"ready": {host: "https://address:port"}}, then one answer to each line
of standard input, {"ok": true, ...} or {"ok": false, "error": "one line"}:
    {"do": "begin_post", "host": ...}     the host went down
    {"do": "end_post", "host": ...}       ... and boots: {"snoop_mode": "home", "up": true}; not up
                                          is a machine that shall stay down
    {"do": "power", "host": ..., "on": false}
    {"do": "note", "host": ..., "message": "..."}                 what a BMC sees of its host
    {"do": "fault", "host": ..., "fault": "busy", "answers": 5}   (answers: of busy only)
    {"do": "heal", "host": ..., "fault": "busy"}                  (without fault: all)
    {"do": "slow", "host": ..., "seconds": 1.5, "in_turn": false} each answer takes so long
    {"do": "stage", "host": ..., "attributes": {...}}             what somebody else left pending
    {"do": "status", "host": ...}                                 (without host: of all hosts)
In between, {"reset": host, "kind": "ForceRestart"} for a reset that a BMC was asked for.
It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from .machine import FAULTS, Machine
from .messages import Refused
from .server import Address, Server, serve
from .service import Service

Reply = dict[str, Any]

OPEN_FILES = 8192  # one per address that is listened on, and per connection


class Lines:
    """Standard output: whole lines, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, message: Reply) -> None:
        text = json.dumps(message).encode() + b"\n"
        with self._lock:
            while text:
                text = text[os.write(1, text) :]


class Process:
    def __init__(self, options: dict[str, Any], lines: Lines) -> None:
        self.machines = {
            host["name"]: Machine(
                host["name"],
                host["personality"],
                post_seconds=options.get("post_seconds", 0.0),
                driven=options.get("driven", True),
                on_reset=lambda name, kind: lines.write({"reset": name, "kind": kind}),
            )
            for host in options["hosts"]
        }
        self._options = options

    def listen(self) -> tuple[Server, dict[str, str]]:
        """The server, and the URL of each host's BMC."""
        options = self._options
        hosts = options["hosts"]
        own: list[Address] = [(host["address"], host.get("port", 443)) for host in hosts]
        password = Path(options["password_file"]).read_text().strip()
        service = Service(options.get("username", "edgetune"), password)
        files = Path(options["certificate"]), Path(options["key"])
        at: dict[Address | str, Machine] = {}
        if "listen" in options:
            at.update({host["address"]: self.machines[host["name"]] for host in hosts})
            server = serve(at, (options["listen"], own[0][1]), *files, service)
        else:
            server = serve(at, own, *files, service)
            own = server.addresses
            at.update(zip(own, self.machines.values()))
        urls = {host["name"]: f"https://{ip}:{port}" for host, (ip, port) in zip(hosts, own)}
        return server, urls

    def answer(self, line: str) -> Reply:
        try:
            request = json.loads(line)
            verb = _VERBS[request.pop("do")]
            name = request.pop("host", None)
            if name is None and verb is _status:
                return {"ok": True, "hosts": {key: _locked(_status, m) for key, m in self._all()}}
            return {"ok": True, **_locked(verb, self.machines[name], **request)}
        except Refused as refused:
            return {"ok": False, "error": f"the BMC refuses: {refused.key}"}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}

    def _all(self) -> Any:
        return self.machines.items()


def _locked(verb: Any, machine: Machine, **arguments: Any) -> Reply:
    with machine.lock:
        reply: Reply = verb(machine, **arguments)
        return reply


def _begin_post(machine: Machine) -> Reply:
    machine.begin_post()
    return {}


def _end_post(machine: Machine) -> Reply:
    up = machine.end_post()
    return {"snoop_mode": machine.snoop_mode, "up": up}


def _power(machine: Machine, on: bool) -> Reply:
    machine.power(on)
    return {}


def _note(machine: Machine, message: str) -> Reply:
    machine.note("Critical", message)
    return {}


def _fault(machine: Machine, fault: str, answers: int = 3) -> Reply:
    if fault not in FAULTS:
        raise LookupError(f"no such fault: {fault} (there are {', '.join(FAULTS)})")
    machine.busy_answers = answers
    machine.faults.add(fault)
    return {}


def _heal(machine: Machine, fault: str | None = None) -> Reply:
    machine.faults -= {fault} if fault else set(FAULTS)
    return {}


def _stage(machine: Machine, attributes: dict[str, Any]) -> Reply:
    machine.stage(attributes)
    return {}


def _slow(machine: Machine, seconds: float, in_turn: bool = False) -> Reply:
    machine.answer_seconds, machine.in_turn = seconds, in_turn
    return {}


def _status(machine: Machine) -> Reply:
    machine.advance()
    return {
        "personality": machine.personality.name,
        "phase": machine.phase,
        "snoop_mode": machine.snoop_mode,
        "pending": machine.pending,
        "faults": sorted(machine.faults),
        "resets": machine.resets,
        "requests": Counter(method for method, _ in machine.log),
        "connections": machine.connections,
        "sessions": len(machine.sessions.ids()),
    }


_VERBS = {
    "begin_post": _begin_post,
    "end_post": _end_post,
    "power": _power,
    "fault": _fault,
    "heal": _heal,
    "note": _note,
    "slow": _slow,
    "stage": _stage,
    "status": _status,
}


def main() -> None:
    lines = Lines()
    process = Process(json.loads(sys.argv[1]), lines)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, OPEN_FILES), most))
    server, urls = process.listen()
    lines.write({"ready": urls})
    for line in sys.stdin:
        lines.write(process.answer(line))
    os._exit(0)  # threads that still talk to somebody need no goodbye


if __name__ == "__main__":
    main()
