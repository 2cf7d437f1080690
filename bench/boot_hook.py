# SPDX-License-Identifier: Apache-2.0
"""What the boot hook takes on a virtual machine.

As many of a list of settings as the machine takes are set, and kept over boots. After each boot
systemd tells the CPU time of the hook, with that of what follows it, and how long the network
waited for it. The machine is emulated, and a busy controller makes all its times longer: so a start
of Python is measured in the same boot, and the hook is counted in such starts, too.

As root, with the packages of `edgetune lab up --machines`. Each boot takes half a minute or more.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench._ssh_peers import request_text
from bench._table import BenchError, carry_out, count_chosen, options, shown, spread, told
from edgetune.agent import bundle
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.net.hosts.conversation import BOOTSTRAP
from lab import pop

HOST = "e000"
BOOT_SECONDS = 900.0
STARTS = 10
# SD_MESSAGE_UNIT_RESOURCES of systemd: what a unit has consumed, once it has ended.
CONSUMED = """
systemctl is-active --quiet edgetune edgetune-late && exit
journalctl -b -o json MESSAGE_ID=ae8f7b866b0347b9af31fe1c80b127c0 |
    grep -E '"UNIT":"edgetune(-late)?.service"'
"""
WAITED = "systemctl show edgetune -p Result -p InactiveExitTimestampMonotonic "
WAITED += "-p ActiveEnterTimestampMonotonic -p InactiveEnterTimestampMonotonic"
PYTHON = f"""
import resource, subprocess, sys
for _ in range({STARTS}):
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print((used.ru_utime + used.ru_stime) / {STARTS})
"""
COLUMNS = {
    "settings": "{count}",
    "CPU s (median, min..max)": told("cpu_s", "g"),
    "starts of Python": "{python_starts[median]:.1f}",
    "network waits s": told("waited_s", "g"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 3, quick=1, what="boots, ")
    show = shown("on a virtual machine; boots: {rounds}", COLUMNS, _more)
    return carry_out("boot_hook", chosen, lambda: run(rounds), show)


def _more(document: Mapping[str, Any]) -> None:
    for found in document["figures"]:
        print(", ".join(found["settings"]))


def run(rounds: int) -> dict[str, Any]:
    """The figures; BenchError where there can be no machine, or it goes wrong."""
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-") as name:
        home = Path(name)
        try:
            tell = functools.partial(print, file=sys.stderr)
            pop.up(home, hosts=1, machines=1, load=False, tell=tell)
            try:
                machine = Machine(home)
                machine.await_boot(1)
                return {"rounds": rounds, "figures": [_measure(machine, rounds)]}
            finally:
                pop.down(home)
        except pop.LabError as error:
            raise BenchError(str(error)) from None


class Machine:
    """The lab's machine, by its console."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._agent = bundle.make()

    def run(self, *command: str, stdin: bytes = b"") -> str:
        return pop.console(self._home, HOST, command, stdin, timeout=600)

    def shell(self, text: str) -> str:
        return self.run("sh", "-c", f"{text}\n:")

    def reply(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The whole reply of the agent."""
        document = request_text(verb, fields, self._agent)
        found: dict[str, Any] = json.loads(self.run(*shlex.split(BOOTSTRAP), stdin=document))
        return found

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The result of what has to go well."""
        reply = self.reply(verb, **fields)
        if not reply["ok"]:
            raise BenchError(f"{verb}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    def reboot(self) -> None:
        boots = pop.boots(self._home)[HOST]
        boot_id = self.ask("facts")["boot_id"]
        # The machine may be off before the last byte of the answer is through its console.
        with contextlib.suppress(pop.LabError):
            self.ask("reboot", epoch=1, boot_id=boot_id)
        self.await_boot(boots + 1)

    def await_boot(self, boots: int) -> None:
        """Until systemd has nothing left to start."""
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            try:
                state = self.shell("systemctl is-system-running")
            except pop.LabError:
                state = ""
            if pop.boots(self._home)[HOST] == boots and state.strip() in ("running", "degraded"):
                return
            time.sleep(1)
        raise BenchError(f"boot {boots}: not in {BOOT_SECONDS:.0f} s")


def _measure(machine: Machine, rounds: int) -> dict[str, Any]:
    # It would move interrupts, and takes its own part of a boot.
    machine.shell("systemctl mask --now irqbalance")
    settings = _apply(machine)
    machine.ask("confirm", epoch=1, tuning="t", settings=settings)
    cpu, starts, waited = [], [], []
    for _ in range(rounds):
        machine.reboot()
        used = _consumed(machine)
        python = float(machine.run("python3", "-I", "-S", "-c", PYTHON))
        cpu.append(used)
        starts.append(used / python)
        waited.append(_waited(machine))
        wrong = machine.ask("verify", tuning="t", settings=settings)
        if not wrong["verified"]:
            raise BenchError(
                f"a boot lost settings: {[row for row in wrong['settings'] if not row['ok']]}"
            )
    machine.ask("restore", epoch=1, tuning="t")
    figures = {"cpu_s": spread(cpu), "python_starts": spread(starts), "waited_s": spread(waited)}
    ids = [own["id"] for own in settings]
    return {"settings": ids, "count": len(ids), **figures}


def _apply(machine: Machine) -> list[dict[str, Any]]:
    """As many of `_wishes` as the machine takes."""
    settings = list(_wishes(machine.ask("facts")))
    head = {"tuning": "t", "digest": "sha256:1"}
    while True:
        rows = machine.ask("plan", settings=settings, **head)["settings"]
        not_here = {row["id"] for row in rows if row["status"] == "unsupported"}
        settings = [own for own in settings if own["id"] not in not_here]
        seen = {row["id"]: {key: row[key] for key in ("runtime", "persistent")} for row in rows}
        expect = {id: seen[id] for id in seen if id not in not_here}
        within = {"confirm_within": 900, "grace_boots": 0}
        fields = {"epoch": 1, "rollout": "r1", "expect": expect, **within, **head}
        reply = machine.reply("apply", settings=settings, **fields)
        if reply["ok"]:
            return settings
        why = reply["error"]["message"]
        refused = [own for own in settings if why.startswith(f"{own['id']}: cannot be set to")]
        if not refused:
            raise BenchError(f"apply: {why}")
        settings = [own for own in settings if own not in refused]


def _wishes(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A setting of each kind that a machine may have, for each card."""
    for nic, known in facts["nics"].items():
        card = {"interface": nic}
        most = (known["channels"] or {"max": {}})["max"].get("combined", 0)
        if most > 1:
            yield _setting("nic.channels", card, {"combined": most // 2})
        if known["ring_max"]:
            yield _setting("nic.ring", card, {"rx": known["ring_max"]["rx"]})
        yield _setting("nic.rss", card, {"equal": max(most // 2, 1)})
        yield _setting("nic.features", card, {"generic-receive-offload": "off"})
        yield _setting("nic.coalesce", card, {"rx-usecs": 40})
        yield _setting("nic.irq_affinity", card, "interleave")
        yield _setting("nic.xps", card, "0-1")
        yield _setting("nic.rps", card, "0-1")
        yield _setting("nic.rfs", card, "4096")
    yield _setting("route.metric", {"family": "inet", "route": "default"}, {"initcwnd": 20})
    yield _setting("memory.thp", {"file": "enabled"}, "never")
    yield _setting("memory.watermarks", {"parameter": "watermark_scale_factor"}, "50")
    yield _setting("memory.tmpfs_policy", {"mount": "/dev/shm"}, "interleave")
    yield _setting("sched.migration_cost", {}, "400000")
    yield _setting("sysctl", {"key": "net.core.somaxconn"}, "8192")
    yield _setting("sysctl", {"key": "net.ipv4.tcp_fin_timeout"}, "20")
    yield _setting("file", {"path": "/etc/edgetune-bench.conf"}, "a = 1\n")
    limit = {"service": "nginx", "property": "LimitNOFILE"}
    yield _setting("service.property", limit, "65536", restart="nginx")
    yield _setting("memory.numa_policy", {"service": "nginx"}, "interleave", restart="nginx")


def _setting(
    kind: str, target: Mapping[str, str], value: object, restart: str | None = None
) -> dict[str, Any]:
    own = {"kind": kind, "target": dict(target), "value": value, "only": None, "restart": restart}
    return {"id": KINDS[kind].id_of(target), **own}


def _consumed(machine: Machine) -> float:
    """Seconds of CPU of the hook, and of what follows it, once both have ended."""
    end = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < end:
        told = [json.loads(line) for line in machine.shell(CONSUMED).splitlines()]
        if told:
            return sum(int(entry["CPU_USAGE_NSEC"]) for entry in told) / 1e9
        time.sleep(2)
    raise BenchError("systemd does not tell what the boot hook consumed")


def _waited(machine: Machine) -> float:
    """Seconds from the start of the hook until what is ordered after it could start."""
    told = dict(line.split("=") for line in machine.shell(WAITED).splitlines())
    if told.pop("Result") != "success":
        raise BenchError("the boot hook failed")
    began, up, ended = (
        int(told[f"{name}TimestampMonotonic"])
        for name in ("InactiveExit", "ActiveEnter", "InactiveEnter")
    )
    return ((up or ended) - began) / 1e6


if __name__ == "__main__":
    sys.exit(main())
