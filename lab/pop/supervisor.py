# SPDX-License-Identifier: Apache-2.0
"""Process 1 of the lab's own PID namespace: when it ends, the kernel ends everything else.

Started by `control.up`, never by hand. It reports on standard output, one JSON object per line:
{"pid": its PID outside}, {"progress": "one line"} as often as there is some, then {"ready": state}
or {"error": "one line"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from lab import unix

from . import files, kernel, network, sysview
from .layout import FAILED, INPUT, LabError, Layout
from .pop import PoP

REQUEST_SECONDS = 10.0
# Methods of the PoP that a request may name, with the arguments in the rest of it.
VERBS = {
    *("set_load", "power", "kill", "fill_disk", "keep_busy", "boots_told"),
    *("set_link", "slow_link", "set_monitoring", "balancer_fault", "balancer_state", "bmc_fault"),
    "slow_application",
}
# Of the options, those that the PoP is made of, in its order.
PARTS = (
    *("hosts", "pops", "post_seconds", "drops", "prometheus", "machines", "image"),
    *("anycast", "balancers", "application"),
)


def main() -> None:
    """Argument: JSON with home, PARTS, load, nic_queue and descriptors: lock, machine (the
    machine's network namespace, of which only settings are read), and, unless the lab is to outlive
    its starter, starter (see `lab.lifeline`).
    """
    options = json.loads(sys.argv[1])
    if os.getpid() != 1:
        sys.exit("not process 1 of its own PID namespace: the lab is started by `edgetune lab up`")
    pid = int(Path("/proc/self").readlink().name)  # still the /proc of the machine
    for name in {"lock", "starter"} & options.keys():
        os.set_inheritable(options[name], False)
    os.pwrite(options["lock"], f"{pid}\n".encode(), 0)
    _report({"pid": pid})
    try:
        supervisor = Supervisor(Layout(Path(options["home"])), pid, options)
    except (LabError, OSError) as error:
        _report({"error": str(error)})
        sys.exit(1)
    _report({"ready": supervisor.state()})
    os.dup2(2, 1)
    supervisor.serve(options.get("starter"))
    supervisor.layout.forget()


def _report(message: dict[str, Any]) -> None:
    """Nobody left to read it: that is BrokenPipeError, and the end of the lab."""
    os.write(1, json.dumps(message).encode() + b"\n")


class Supervisor:
    """Brings the PoP up when made; `serve` keeps it running."""

    def __init__(self, layout: Layout, pid: int, options: dict[str, Any]) -> None:
        self.layout = layout
        self.pid = pid
        kernel.mount("proc", "/proc", "proc")
        kernel.mount("disks", layout.disks, "tmpfs", data="mode=755")
        _copy_settings(options["machine"], layout)
        wanted = (options[name] for name in PARTS)
        self.pop = PoP(layout, *wanted)
        self.pop.bring_up(options["nic_queue"], lambda text: _report({"progress": text}))
        self.pop.set_load(options["load"])
        self.listener = unix.listen(layout.socket)
        files.write_state(layout, self.state())

    def state(self) -> dict[str, Any]:
        return {**self.pop.describe(), "pid": self.pid}

    def serve(self, starter: int | None) -> None:
        """Answer requests, reap what ended, do what is due or what BMCs are asked for: until the
        starter has ended, or for ever without one.
        """
        alarm = _child_alarm()
        selector = selectors.DefaultSelector()
        selector.register(self.listener, selectors.EVENT_READ)
        selector.register(alarm, selectors.EVENT_READ)
        bmcs = self.pop.bmcs
        selector.register(bmcs, selectors.EVENT_READ)
        if starter is not None:
            selector.register(starter, selectors.EVENT_READ)
        ready: list[Any] = []
        while starter is None or starter not in ready:
            self._reap()
            ready = [key.fileobj for key, _ in selector.select(self.pop.do_due())]
            if alarm in ready:
                alarm.recv(4096)
            if self.listener in ready:
                self._answer()
            if bmcs.has_ended and bmcs in ready:  # which it would be for ever
                selector.unregister(bmcs)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.pop.ended(pid, status)

    def _answer(self) -> None:
        """One request per connection; a caller that misbehaves costs ten seconds, no more."""
        connection, _ = self.listener.accept()
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(REQUEST_SECONDS)
            request = json.loads(connection.makefile().readline())
            descriptors: list[int] = []
            try:
                reply = {"ok": True, "result": self._carry_out(request, descriptors)}
            except (LabError, OSError, LookupError, TypeError) as error:
                reason = getattr(error, "reason", FAILED)
                reply = {"ok": False, "error": f"{error}", "reason": reason}
            try:
                socket.send_fds(connection, [json.dumps(reply).encode() + b"\n"], descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _carry_out(self, request: dict[str, Any], descriptors: list[int]) -> Any:
        verb = request.pop("do")
        if verb == "status":
            return self.state()
        if verb == "enter":
            return descriptors.append(os.dup(self.pop.namespaces["controller"]))
        if verb == "namespaces":
            return descriptors.extend(self.pop.enter(request["host"]))
        if verb not in VERBS:
            raise LabError(f"the lab knows no {verb}", INPUT)
        return getattr(self.pop, verb)(**request)


def _copy_settings(machine: int, layout: Layout) -> None:
    """Some of net.core are visible in the machine's own network namespace only."""
    with network.inside(machine):
        sysview.build_template(layout.disks / "sysctls")
    os.close(machine)


def _child_alarm() -> socket.socket:
    """Readable whenever a child has ended."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer.detach())
    return reader


if __name__ == "__main__":
    main()
