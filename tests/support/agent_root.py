# SPDX-License-Identifier: Apache-2.0
"""A host for the agent in a directory of its own: files for its kernel, stubs for its programs.

Nothing of it reaches this machine: the agent runs no program but ROOT/usr/local/sbin/*, and
those keep their state below ROOT/stub.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import marshal
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from edgetune.agent import bundle
from edgetune.agent.__main__ import act_unattended
from edgetune.agent.dispatch import answer
from edgetune.agent.host import Host
from edgetune.agent.unattended import boot
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.net.hosts.answers import read_answer, read_result
from edgetune.net.hosts.fleet import packed
from tests.support import FIXTURES
from tests.support.cases import table
from tests.support.waiting import comes_true

STUBS = FIXTURES / "agent"
BOOTSTRAP = (
    "import sys, zlib; i = sys.stdin.buffer; "
    "source = zlib.decompress(i.read(int(i.readline()))); "
    'exec(compile(source, "edgetune-agent", "exec"))'
)
COMPILED_BOOTSTRAP = (
    "import marshal, sys; i = sys.stdin.buffer; "
    f"KEPT = marshal.loads(i.read(int(i.readline()))); {BOOTSTRAP}"
)
THP = "sys/kernel/mm/transparent_hugepage"
NGINX_DROP_INS = "etc/systemd/system/nginx.service.d"
RUN_SCRIPTS = """\
#!/bin/sh
for script in /etc/init.d/S??*; do
    [ -x "$script" ] && "$script" start
done
"""
# What a host keeps after a restore, by intent: the fence, the lock, the traces of the stubs.
LEFT_OUT = ("stub", "run", "var")

FILES: dict[str, str] = table(Path(__file__).with_name("agent_files.yaml"))


class AgentRoot:
    """One host. ``ask`` talks to its agent as the controller does.

    An agent compiles what it is sent, which takes half of its time, unless it lies compiled on the
    host: the first one of a host does, the others get that from here.

    ``patch`` is what its test changes of this process for a time.
    """

    patch: Any = None
    _has_answered = False

    def __init__(self, path: Path, init: str = "sysv", python: str = sys.executable) -> None:
        self.path = path
        self.python = python
        for name, text in FILES.items():
            self.write(name, text)
        self.new_boot_id()
        self._make_nic("lo", [])
        self._make_nic("eth0", ["rx-0", "rx-1", "rx-2", "rx-3", "tx-0", "tx-1", "tx-2", "tx-3"])
        if init == "systemd":
            for name in ("run/systemd/system", "etc/systemd/system"):
                self.make_directory(path / name)
        elif init == "sysv":
            self.write("etc/init.d/rcS", RUN_SCRIPTS).chmod(0o755)
        shutil.copytree(STUBS, self.make_directory(path / "usr/local") / "sbin")

    def _make_nic(self, name: str, queues: Sequence[str]) -> None:
        base = f"sys/class/net/{name}"
        for counter in ("rx_packets", "rx_bytes", "tx_packets", "rx_dropped", "rx_missed_errors"):
            self.write(f"{base}/statistics/{counter}", "7\n")
        for queue in queues:
            self.write(f"{base}/queues/{queue}/{steering(queue)}", "0\n")
            if queue.startswith("rx"):
                self.write(f"{base}/queues/{queue}/rps_flow_cnt", "0\n")

    def write(self, name: str, text: str) -> Path:
        """Make a file, with the directories it needs; an older one keeps its mode."""
        path = self.path / name
        self.make_directory(path.parent)
        is_new = not path.exists()
        path.write_text(text)
        if is_new:
            path.chmod(0o644)
        return path

    def make_directory(self, path: Path) -> Path:
        """Have a directory, with those above it; as a kernel's, its mode is of no umask."""
        if not path.is_dir():
            self.make_directory(path.parent).joinpath(path.name).mkdir()
            path.chmod(0o755)
        return path

    def read(self, name: str) -> str:
        """The content of a file."""
        return (self.path / name).read_text()

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.lexists(self.path / name)

    def new_boot_id(self) -> str:
        """Start another boot, as far as the boot_id tells."""
        boot_id = str(uuid.uuid4())
        self.write("proc/sys/kernel/random/boot_id", f"{boot_id}\n")
        return boot_id

    def make_unit(self, name: str, active: str = "active", enabled: str = "enabled") -> None:
        """Have a unit of systemd, beside nginx."""
        self.write(f"stub/units/{name}/active", f"{active}\n")
        self.write(f"stub/units/{name}/enabled", f"{enabled}\n")

    def unit(self, name: str) -> tuple[str, str]:
        """What systemctl says of it: whether it is active, and enabled."""
        own = f"stub/units/{name}"
        return self.read(f"{own}/active").strip(), self.read(f"{own}/enabled").strip()

    @property
    def boot_id(self) -> str:
        """The present one."""
        return self.read("proc/sys/kernel/random/boot_id").strip()

    @property
    def commands(self) -> list[str]:
        """What the stubs were called with."""
        return self.read("stub/log").splitlines() if self.exists("stub/log") else []

    @property
    def environment(self) -> dict[str, str]:
        """Of the agent: its root, and nothing else of ours."""
        return {"EDGETUNE_ROOT": str(self.path), "PATH": "/usr/bin:/bin"}

    def start(self, document: bytes) -> subprocess.Popen[bytes]:
        """Send the agent and a request, as ``hosts.fleet`` does over SSH."""
        process = self.begin(document)
        release(process)
        return process

    def begin(self, document: bytes) -> subprocess.Popen[bytes]:
        """The same, but the agent waits for the end of its request until ``release``."""
        sent, program = BOOTSTRAP, _program()
        compiles = not self.exists("var/lib/edgetune/agent.py.compiled")
        if self._has_answered and compiles and self.python == sys.executable:
            sent, program = COMPILED_BOOTSTRAP, _compiled() + program
        self._has_answered = True
        process = subprocess.Popen(
            [self.python, "-I", "-S", "-c", sent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        assert process.stdin
        process.stdin.write(program + document)
        process.stdin.flush()
        return process

    def send(self, document: bytes) -> dict[str, Any]:
        """The one reply to a request of any bytes."""
        output, errors = self.start(document).communicate(timeout=60)
        assert errors == b""
        reply: dict[str, Any] = json.loads(output)
        assert reply["edgetune"] == 1
        assert set(reply) == {"edgetune", "verb", "ok", "result" if reply["ok"] else "error"}
        return reply

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The result of a verb that is expected to go well, and to pass the controller's door."""
        reply = self.send(request(verb, **fields))
        assert reply["ok"], reply
        assert reply["verb"] == verb
        result: dict[str, Any] = reply["result"]
        assert set(read_result(verb, fields, result)) == set(result)
        return result

    def fail(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The error of a verb that is expected not to."""
        reply = self.send(request(verb, **fields))
        assert not reply["ok"], reply
        error: dict[str, Any] = reply["error"]
        assert read_answer("e000", verb, fields, json.dumps(reply).encode()).reason
        assert "\n" not in error["message"]
        return error

    def plan(self, *settings: Mapping[str, Any], tuning: str = "t") -> list[dict[str, Any]]:
        """The rows of a plan."""
        rows = self.ask("plan", tuning=tuning, digest="sha256:1", settings=list(settings))
        found: list[dict[str, Any]] = rows["settings"]
        return found

    def change(self, *settings: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The request to apply settings as a plan sees them now."""
        tuning = changes.get("tuning", "t")
        seen = self.plan(*settings, tuning=tuning)
        fields = {
            "epoch": 1,
            "rollout": "r1",
            "tuning": tuning,
            "digest": "sha256:1",
            "settings": list(settings),
            "expect": {row["id"]: {k: row[k] for k in ("runtime", "persistent")} for row in seen},
            "confirm_within": 0,
            "grace_boots": 0,
        }
        return {**fields, **changes}

    def apply(self, *settings: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """Plan and apply."""
        return self.ask("apply", **self.change(*settings, **changes))

    def verifies(self, *settings: Mapping[str, Any], tuning: str = "t") -> bool:
        """Whether all is as a tuning wants it."""
        return bool(self.ask("verify", tuning=tuning, settings=list(settings))["verified"])

    def confirm(self, *settings: Mapping[str, Any], tuning: str = "t") -> dict[str, Any]:
        """Ask to keep a tuning."""
        return self.ask(
            "confirm", epoch=1, tuning=tuning, digest="sha256:1", settings=list(settings)
        )

    def restore(self, tuning: str = "t", epoch: int = 1) -> dict[str, Any]:
        """Take a tuning back."""
        return self.ask("restore", epoch=epoch, tuning=tuning)

    @contextlib.contextmanager
    def applied(self, *settings: Mapping[str, Any], **changes: Any) -> Iterator[dict[str, Any]]:
        """Settings for a time, after which every byte is as before, also over a boot."""
        before, tuning = without_boot_id(self.tree()), changes.get("tuning", "t")
        result = self.apply(*settings, **changes)
        assert self.verifies(*settings, tuning=tuning)
        assert not self.apply(*settings, **changes)["changed"]
        yield result
        assert self.restore(tuning)["changed"]
        assert without_boot_id(self.tree()) == before

    def journal(self, tuning: str = "t") -> dict[str, Any]:
        """What the host has noted of a tuning."""
        own: dict[str, Any] = json.loads(self.read(f"var/lib/edgetune/tunings/{tuning}.json"))
        return own

    def note(self, tuning: str = "t", **fields: Any) -> None:
        """Change what the host has noted; at once, as a timer reads it at any moment."""
        name = f"var/lib/edgetune/tunings/{tuning}.json"
        self.write("stub/journal", json.dumps({**self.journal(tuning), **fields})).replace(
            self.path / name
        )

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Boot anew: memory is lost, then the boot hook runs if it is there, then nginx starts."""
        self.new_boot_id()
        shutil.rmtree(self.path / "stub/transient", ignore_errors=True)
        stored = sorted(self.path.glob("etc/sysctl.d/*.conf"))
        kept = re.findall(r"somaxconn = (\d+)", "".join(file.read_text() for file in stored))
        self.write("proc/sys/net/core/somaxconn", f"{[128, *kept][-1]}\n")
        self.write(f"{THP}/enabled", "always [madvise] never\n")
        for mask in self.path.glob("sys/class/net/eth0/queues/rx-*/rps_cpus"):
            mask.write_text("0\n")
        for unit in self.path.glob("stub/units/*"):
            enabled = (unit / "enabled").read_text() == "enabled\n"
            (unit / "active").write_text("active\n" if enabled else "inactive\n")
        hook = self.run_hook()
        systemctl = self.path / "usr/local/sbin/systemctl"
        subprocess.run([systemctl, "start", "nginx"], env=self.environment, check=True)
        return hook

    def run_hook(self) -> subprocess.CompletedProcess[str]:
        """Run the boot hook as the init of this host does; nothing where there is none."""
        if self.exists("etc/systemd/system/edgetune.service"):
            return self.run_copy("boot")
        script = self.path / "etc/init.d/S99edgetune"
        return self._run([str(script), "start"] if script.exists() else ["true"])

    def run_copy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the agent's copy on the disk of the host."""
        copy = str(self.path / "var/lib/edgetune/agent.py")
        return self._run([self.python, "-I", "-S", copy, *arguments])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def state(self, tuning: str = "t") -> str:
        """What stands of a tuning, ``none`` without a journal."""
        known = self.ask("facts")["agent_state"]["tunings"]
        return str(known[tuning]["state"]) if tuning in known else "none"

    def deadline(self, tuning: str = "t") -> float:
        """When a tuning is taken back; FileNotFoundError when that is done."""
        return float(self.journal(tuning)["deadline"]["monotonic"])

    def let_deadline_pass(self, tuning: str = "t") -> None:
        """Let the timer of a tuning find it over: no test has to be quicker than its deadline."""
        deadline = {**self.journal(tuning)["deadline"], "monotonic": time.monotonic()}
        self.note(tuning, deadline=deadline)

    def tree(self) -> dict[str, tuple[int, bytes | str | None]]:
        """Mode and content of everything that a restore has to bring back to the byte."""
        start = len(f"{self.path}/")
        return {
            entry.path[start:]: (
                stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode),
                content(entry),
            )
            for entry in below(str(self.path), LEFT_OUT)
        }

    def leftovers(self) -> set[str]:
        """The files in the directory of the agent's state."""
        state = self.path / "var/lib/edgetune"
        return {str(path.relative_to(state)) for path in state.rglob("*") if not path.is_dir()}

    def processes(self) -> list[int]:
        """What runs with this root, such as revert timers."""
        mark = b"EDGETUNE_ROOT=" + os.fsencode(self.path) + b"\0"
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (directory / "environ").read_bytes() + b"\0":
                    found.append(int(directory.name))
        return found

    def stop(self) -> None:
        """Kill what is left running with this root."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@functools.cache
def _program() -> bytes:
    return packed(bundle.make())


@functools.cache
def _compiled() -> bytes:
    kept = {
        name: marshal.dumps(compile(text, f"edgetune-agent/{name}", "exec"))
        for name, text in bundle.modules().items()
    }
    text = marshal.dumps(kept)
    return b"%d\n%s" % (len(text), text)


class NearRoot(AgentRoot):
    """The same, asked in this process: many times faster, and doubles can be its programs."""

    def send(self, document: bytes) -> dict[str, Any]:
        reply: dict[str, Any] = answer(str(self.path), document)
        json.dumps(reply)
        return reply

    def run_copy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Do in this process what the copy on the disk would do, which has to be whole."""
        copy = "var/lib/edgetune/agent.py"
        assert self.read(copy).encode() == bundle.copy_runner()
        assert self.read(f"{copy}.source").encode() == bundle.make()
        problems = act_unattended(Host(str(self.path)), list(arguments))
        return subprocess.CompletedProcess(arguments, bool(problems), "", "\n".join(problems))

    def boot_hook(self) -> list[str]:
        """Start another boot and run what the hook runs; its problems."""
        self.new_boot_id()
        return boot(Host(str(self.path)))


def release(process: subprocess.Popen[bytes]) -> None:
    """Let an agent go that ``begin`` started."""
    assert process.stdin
    process.stdin.close()
    process.stdin = None


def request(verb: str, **fields: Any) -> bytes:
    """A request as it is sent."""
    return json.dumps({"protocol": 1, "verb": verb, **fields}).encode()


def without_boot_id(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What ``tree`` tells of a host, to be compared over a reboot."""
    return {name: was for name, was in tree.items() if not name.endswith("/boot_id")}


def below(directory: str, left_out: Sequence[str] = ()) -> Iterator[os.DirEntry[str]]:
    """All that a directory holds, but for some of its own entries."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name not in left_out:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    yield from below(entry.path)


def content(entry: os.DirEntry[str]) -> bytes | str | None:
    """Of a file, or where a link leads."""
    path = Path(entry.path)
    if entry.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if entry.is_file() else None


def steering(queue: str) -> str:
    """The file that steers packets to, or from, a queue."""
    return "rps_cpus" if queue.startswith("rx") else "xps_cpus"


def until(condition: Any, seconds: float = 60) -> bool:
    """Whether a condition comes true in time."""

    def holds() -> Any:
        # A file can vanish while it is looked at.
        with contextlib.suppress(FileNotFoundError):
            return condition()
        return False

    return comes_true(holds, seconds)


@contextlib.contextmanager
def agent_root(path: Path, init: str = "sysv", python: str = sys.executable) -> Iterator[AgentRoot]:
    """A host for the time of a test."""
    with _until_stopped(AgentRoot(path, init, python)) as root:
        yield root


@contextlib.contextmanager
def near_root(path: Path, init: str = "sysv", patch: Any = None) -> Iterator[NearRoot]:
    """The same for one that is asked in this process."""
    with _until_stopped(NearRoot(path, init)) as root:
        root.patch = patch
        yield root


AnyRoot = TypeVar("AnyRoot", bound=AgentRoot)


@contextlib.contextmanager
def _until_stopped(root: AnyRoot) -> Iterator[AnyRoot]:
    try:
        yield root
    finally:
        root.stop()


def sysctl(value: str, key: str = "net.core.somaxconn", **changes: Any) -> dict[str, Any]:
    """A sysctl setting."""
    return setting("sysctl", {"key": key}, value, **changes)


def channels(rx: int, **changes: Any) -> dict[str, Any]:
    """A setting of as many receive as transmit channels."""
    return setting("nic.channels", {"interface": "eth0"}, {"rx": rx, "tx": rx}, **changes)


def rps(cpus: str, **changes: Any) -> dict[str, Any]:
    """A nic.rps setting."""
    return setting("nic.rps", {"interface": "eth0"}, cpus, **changes)


def thp(word: str, file: str = "enabled", **changes: Any) -> dict[str, Any]:
    """A memory.thp setting."""
    return setting("memory.thp", {"file": file}, word, **changes)


def nginx(name: str, value: str, **changes: Any) -> dict[str, Any]:
    """A service.property setting of nginx."""
    target = {"service": "nginx", "property": name}
    return setting("service.property", target, value, **{"restart": "nginx", **changes})


def unit(name: str, **parts: str) -> dict[str, Any]:
    """A unit setting, such as active="off"."""
    return setting("unit", {"unit": name}, parts)


def file(path: str, text: str, **changes: Any) -> dict[str, Any]:
    """A file setting."""
    return setting("file", {"path": path}, text, **changes)


def setting(kind: str, target: dict[str, str], value: Any, **changes: Any) -> dict[str, Any]:
    """Any setting, in the form the agent takes."""
    own = {"id": KINDS[kind].id_of(target), "kind": kind, "target": target, "value": value}
    return {**own, "only": None, "restart": None, **changes}


class FullDisk:
    """From now on, or after some writes more, no file grows and none is made.

    What room a file has it keeps, under whatever name.
    """

    def __init__(self, patch: Any, after: int = 0) -> None:
        self.left = after
        self._open = os.open
        for name in ("mkdir", "symlink", "posix_fallocate"):
            patch.setattr(os, name, self._refuse_if_full(getattr(os, name)))
        patch.setattr(os, "open", self.open)

    def open(self, path: str, flags: int, *mode: int, **more: Any) -> int:
        """A file that is there can be opened."""
        makes = flags & os.O_CREAT and not _is_there(path, **more) and not path.endswith(".lock")
        return (self._refuse_if_full(self._open) if makes else self._open)(
            path, flags, *mode, **more
        )

    def _refuse_if_full(self, function: Any) -> Any:
        def refuse_if_full(*given: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*given, **more)

        return refuse_if_full


def _is_there(path: str, dir_fd: int | None = None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
