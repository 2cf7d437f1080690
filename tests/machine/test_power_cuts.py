# SPDX-License-Identifier: Apache-2.0
"""The power of a machine is cut, and its kernel panics, while a tuning is applied or taken back.

A moment is one of the operation's own steps: a file that is opened for writing, a sync, a rename, a
program that is started. They are counted first, and one of them is drawn for each cut. There the
agent says so on the serial port and stops, or goes on; then the power goes. So every cut falls into
the operation, however slow the machine is.

What it finds is the page cache, the journal of ext4 and the boot of a real machine.
`tests/lib/agent/test_faults.py` kills the agent at every step, without a machine.

EDGETUNE_CUTS says how many moments there are, 6 without; EDGETUNE_CUTS_SEED which ones.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgetune import AGENT_PROTOCOL
from edgetune.agent import bundle
from edgetune.net.hosts.fleet import packed
from lab import pop
from tests.support.agent_root import setting
from tests.support.practice import needs_machines

pytestmark = needs_machines
HOST = "e000"
CUTS = int(os.environ.get("EDGETUNE_CUTS", "6"))
SEED = int(os.environ.get("EDGETUNE_CUTS_SEED", "20"))
BOOT_SECONDS = 900.0
OPERATION_SECONDS = 600.0
MARK = "edgetune: here the power goes"
# In this order in turn: most that can go wrong is in the first and the last.
OPERATIONS = ("apply", "restore", "apply", "restore", "confirm")
WAYS = ("stop", "go", "panic", "stop", "go")

# Runs the agent as BOOTSTRAP does, and ends the machine at a step; -1 counts the steps.
STEPS = """
import os, subprocess, sys, time, zlib
at, way, mark = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.argv[1:] = []
done = 0

def end():
    if way == "panic":
        with open("/proc/sysrq-trigger", "w") as kernel:
            kernel.write("c")
    with open("/dev/ttyS0", "w") as console:
        console.write("\\n" + mark + "\\n")
    if way == "stop":
        time.sleep(3600)

def counted(function, counts=lambda *given: True):
    def called(*given, **more):
        global done
        if counts(*given):
            done += 1
            if done - 1 == at:
                end()
        return function(*given, **more)
    return called

for name in ("write", "fsync", "rename", "unlink", "mkdir", "rmdir", "symlink"):
    setattr(os, name, counted(getattr(os, name)))
os.open = counted(os.open, lambda path, flags, *mode: flags & (os.O_WRONLY | os.O_CREAT))
subprocess.run = counted(subprocess.run)
given = sys.stdin.buffer
source = zlib.decompress(given.read(int(given.readline())))
try:
    exec(compile(source, "edgetune-agent", "exec"))
finally:
    sys.stdout.write("%d\\n" % done)
"""

# All that the settings are about, and every file below /etc.
LOOK = """
import glob, hashlib, os, subprocess
for top, names, files in sorted(os.walk("/etc")):
    print(top)
    for name in sorted(files):
        path = os.path.join(top, name)
        about = os.lstat(path)
        own = os.readlink(path) if os.path.islink(path) else open(path, "rb").read()
        text = own if isinstance(own, str) else hashlib.sha256(own).hexdigest()
        print(path, oct(about.st_mode), about.st_uid, about.st_gid, text)
runtime = ["/proc/sys/net/core/somaxconn", "/sys/kernel/mm/transparent_hugepage/enabled"]
for path in runtime + sorted(glob.glob("/sys/class/net/en*/queues/*/rps_cpus")):
    print(path, open(path).read().strip())
for card in sorted(glob.glob("/sys/class/net/en*")):
    print(subprocess.check_output(["ethtool", "-k", os.path.basename(card)], text=True))
pid = subprocess.check_output(["systemctl", "show", "-p", "MainPID", "nginx"], text=True)
limits = open("/proc/%s/limits" % pid.strip().partition("=")[2]).read()
print([line for line in limits.splitlines() if "open files" in line])
"""


class Cut(Exception):
    """The machine ended within an operation."""


class Victim:
    """The machine, and what is done to it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._console = home / f"lab/console/{HOST}.log"
        self.settings: list[dict[str, Any]] = []

    def run(self, *command: str, stdin: bytes = b"") -> str:
        return pop.console(self._home, HOST, command, stdin, timeout=OPERATION_SECONDS)

    def python(self, text: str, *words: str, stdin: bytes = b"") -> str:
        return self.run("python3", "-I", "-S", "-c", text, *words, stdin=stdin)

    def look(self) -> list[str]:
        return self.python(LOOK).splitlines()

    def ask(self, verb: str, at: int = -1, way: str = "", **fields: Any) -> tuple[Any, int]:
        """The result of a verb, and the steps that it took; Cut where the machine ended at one."""
        request = json.dumps({"protocol": AGENT_PROTOCOL, "verb": verb, **fields}).encode()
        with ThreadPoolExecutor(1) as thread:
            marks = self._marks()
            words = (STEPS, str(at), way, MARK)
            told = thread.submit(self.python, *words, stdin=packed(bundle.make()) + request)
            while at >= 0 and way != "panic" and not told.done() and self._marks() == marks:
                time.sleep(0.05)
            if at >= 0 and way != "panic" and self._marks() > marks:
                self.cut()
            try:
                answer, steps = told.result().strip().splitlines()
            except pop.LabError as error:
                if at < 0:
                    raise
                raise Cut(str(error)) from None
        reply = json.loads(answer)
        assert reply["ok"], reply
        return reply["result"], int(steps)

    def _marks(self) -> int:
        return self._console.read_bytes().count(MARK.encode())

    def operation(self, name: str, at: int = -1, way: str = "") -> int:
        """Do it, or as much of it as comes before a step; the steps that it took."""
        fields: dict[str, Any] = {"epoch": 1, "tuning": "t"}
        if name == "apply":
            head: dict[str, Any] = {"tuning": "t", "digest": "sha256:1"}
            rows = self.ask("plan", settings=self.settings, **head)[0]["settings"]
            seen = {row["id"]: {key: row[key] for key in ("runtime", "persistent")} for row in rows}
            within = {"confirm_within": 7200, "grace_boots": 1}
            fields.update(settings=self.settings, expect=seen, rollout="r1", **head, **within)
        elif name == "confirm":
            fields.update(settings=self.settings)
        return self.ask(name, at, way, **fields)[1]

    def state(self) -> str:
        known = self.ask("facts")[0]["agent_state"]["tunings"]
        return str(known["t"]["state"]) if "t" in known else "none"

    def bring_to(self, wanted: str) -> None:
        """The state in which an operation begins: ``none``, ``provisional`` or ``confirmed``."""
        state = self.state()
        if state not in (wanted, "none") and (state, wanted) != ("provisional", "confirmed"):
            self.operation("restore")
            state = "none"
        if wanted != "none" and state == "none":
            self.operation("apply")
        if wanted == "confirmed" and state != wanted:
            self.operation("confirm")

    def boot(self) -> None:
        """Switch it on if it is off, and wait until systemd has nothing left to start."""
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            if self.is_off:
                pop.power(self._home, HOST, "on")
            if self._is_running():
                return
            time.sleep(1)
        raise AssertionError(f"the machine did not come back in {BOOT_SECONDS:.0f} s")

    def _is_running(self) -> bool:
        try:
            said = self.run("sh", "-c", "systemctl is-system-running; cat /run/cut 2>/dev/null; :")
        except pop.LabError:
            return False
        return said.strip() in ("running", "degraded")

    @property
    def is_off(self) -> bool:
        found = pop.status(self._home)
        assert found is not None
        return str(found["hosts"][0]["state"]) == "off"

    def cut(self) -> None:
        """Take its power away."""
        if not self.is_off:
            pop.power(self._home, HOST, "cut")

    def mark_boot(self) -> None:
        """Let another boot be told from this one."""
        self.run("sh", "-c", "echo this boot >/run/cut")


def settled(look: list[str]) -> list[str]:
    """All but what the next agent that comes by removes: an idle hook, and empty directories."""
    kept = [line for line in look if "edgetune.service" not in line]
    whole = "\n".join(kept)
    # A directory stands without more beside its name.
    return [line for line in kept if " " in line or f"{line}/" in whole]


def wishes(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield setting("sysctl", {"key": "net.core.somaxconn"}, "8192")
    yield setting("file", {"path": "/etc/edgetune-tried.conf"}, "a = 1\nb = 2\n")
    yield setting("memory.thp", {"file": "enabled"}, "never")
    limit = {"service": "nginx", "property": "LimitNOFILE"}
    yield setting("service.property", limit, "65536", restart="nginx")
    for nic in facts["nics"]:
        yield setting("nic.rps", {"interface": nic}, "0-1")
        yield setting("nic.features", {"interface": nic}, {"generic-receive-offload": "off"})


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    home = tmp_path_factory.mktemp("lab")
    pop.up(home, hosts=1, machines=1, load=False, tell=lambda text: print(text, file=sys.stderr))
    try:
        made = Victim(home)
        made.boot()
        made.settings = list(wishes(made.ask("facts")[0]))
        yield made
    finally:
        pop.down(home)


def test_a_cut_leaves_all_or_nothing(victim: Victim) -> None:
    draw = random.Random(SEED)
    looks, steps = {"old": victim.look()}, {}
    steps["apply"] = victim.operation("apply")
    steps["confirm"] = victim.operation("confirm")
    victim.mark_boot()
    victim.run("systemctl", "--no-block", "reboot")
    victim.boot()
    looks["new"] = victim.look()
    assert looks["new"] != looks["old"]
    steps["restore"] = victim.operation("restore")
    assert victim.look() == looks["old"]
    print(f"steps: {steps}")
    begins = {"apply": "none", "confirm": "provisional", "restore": "confirmed"}
    within = 0
    for number in range(CUTS):
        name, way = OPERATIONS[number % 5], WAYS[(number // 2) % 5]
        victim.bring_to(begins[name])
        at = draw.randrange(steps[name])
        victim.mark_boot()
        try:
            victim.operation(name, at, way)
        except Cut:
            within += 1
        else:
            victim.cut()
        victim.boot()
        found = victim.look()
        is_old = settled(found) == settled(looks["old"])
        ends = ["old"] * is_old + ["new"] * (found == looks["new"])
        state = victim.state()
        print(f"{name}, {way} at {at} of {steps[name]}: {ends or 'NEITHER'}, {state}", flush=True)
        assert ends, "\n".join(sorted({*found} ^ {*looks["old"]}))
        assert (state in ("provisional", "confirmed")) == (ends == ["new"])
        if is_old and found != looks["old"]:
            victim.bring_to("none")
            assert victim.look() == looks["old"]
    print(f"{within} of {CUTS} within an operation")
    assert within >= 0.75 * CUTS
    victim.bring_to("none")
    assert victim.look() == looks["old"]
