# SPDX-License-Identifier: Apache-2.0
"""Machines as data: moves upon one host, whose agent is asked in this process, and what is seen.

A scenario is a list of moves, as in `scenarios`. Settings are a mapping: a kind, then what of its
target is not the usual one, then ``raise``, ``lower`` or ``restart``; and the value. They are those
of the ``tuning`` that was named last, ``t`` without one. A plan and a refusal change nothing, and
after ``back`` all is as it was before ``sets``, or before the first move that was to change it.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import time
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from edgetune.agent import unattended
from edgetune.agent.host import Host
from edgetune.agent.kinds import memory_watermarks
from edgetune.agent.kinds.route_metric import Route
from edgetune.agent.protocol import Failed
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.documents.reading import encoded
from edgetune.intent.rendering import misfits, render
from edgetune.intent.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_cpus import Machine, Vectors, run_nginx
from tests.support.agent_nic import NicHost, make_card, steer
from tests.support.agent_programs import (
    DEFAULT,
    SECOND,
    Addresses,
    Routes,
    Systemd,
    Tmpfs,
    instead,
)
from tests.support.agent_root import (
    NGINX_DROP_INS,
    FullDisk,
    below,
    content,
    setting,
    without_boot_id,
)
from tests.support.agent_rss import Complaint
from tests.support.cases import table
from tests.support.scenarios import Scenario
from tests.support.steered import Steered

Settings = list[dict[str, Any]]
Put = Callable[[str], None]
LISTS = table(ROOT / "tests/lib/agent/proc_net.yaml")
COUNTED = ("proc/interrupts",)
PROMETHEUS = "var/lib/prometheus/node-exporter"
USUAL = {
    "service": "nginx",
    "key": "net.core.somaxconn",
    "file": "enabled",
    "family": "inet",
    "route": "default",
    "mount": "/var/cache/objects",
    "parameter": "min_free_kbytes",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "raise": {"only": "raise"},
    "lower": {"only": "lower"},
    "restart": {"restart": "nginx"},
    "alone": {"restart": None},
}


class Sighted:
    """What of a host comes back, and what its doubles do at a boot; for `Moves`."""

    host: Any
    patch: pytest.MonkeyPatch

    def whole(self) -> dict[str, Any]:
        """All that a restore brings back."""
        host, found = self.host, dict(without_boot_id(self.host.tree()))
        found.pop("proc/77/numa_maps", None)
        if hasattr(host, "card"):
            found["card"] = host.card.state
        if hasattr(host, "in_kernel"):
            found["kernel"] = host.in_kernel
        if hasattr(host, "routes"):
            lines = host.routes.lines
            found["routes"] = [Route(own) if own[0] == "u" else own for own in lines]
        return found


class Moves(Sighted, Scenario):
    """Moves upon a host."""

    interface = "eth0"
    names: dict[str, Any] = {}

    def __init__(self, host: Any, patch: pytest.MonkeyPatch) -> None:
        self.world = self.host = host
        self.patch, self.result = patch, None
        self._tuning, self._owns = "t", dict[str, Settings]()
        self._stack: list[tuple[str, dict[str, Any]]] = []
        self._before: dict[str, Any] | None = None
        self.started: list[list[str]] = []
        self.written: list[str] = []
        self.slept: list[float] = []
        self.looks = 0
        self._names = {"BOOT": host.boot_id, "HOME": str(host.path)}

    def play(self, moves: list[dict[str, Any]]) -> None:
        super().play(moves)
        self.where = "at the end"
        while self._stack:
            self.back(None)

    def _meant(self, told: Any) -> Any:
        self._names["BOOT"] = self.host.boot_id
        if isinstance(told, str) and told in self.names:
            return self.names[told]
        return super()._meant(told)

    def _name(self, word: re.Match[str]) -> str:
        return str(self.names.get(word[0], super()._name(word)))

    def _set(self, owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, list):
            owner[int(name)] = value
        elif isinstance(owner, dict):
            owner[name] = value
        else:
            super()._set(owner, name, value)

    # Settings.

    @property
    def own(self) -> Settings:
        """Those of the tuning that was named last."""
        return self._owns[self._tuning]

    def tuning(self, name: str) -> None:
        self._tuning = name

    def settings(self, told: dict[str, Any] | None) -> Settings:
        """Have other settings from now on, or those of before."""
        if told is not None:
            self._owns[self._tuning] = self._made(told)
        return self.own

    def _made(self, told: dict[str, Any]) -> Settings:
        return [self._setting(key, value) for key, value in told.items()]

    def _setting(self, told: str, value: Any) -> dict[str, Any]:
        kind, *words = told.split()
        options: dict[str, Any] = {}
        for word in [word for word in words if word in OPTIONS or "restart=" in word]:
            options.update(OPTIONS.get(word) or {"restart": word.partition("=")[2]})
            words.remove(word)
        if kind in ("service.property", "cpu.service_affinity", "memory.numa_policy"):
            options.setdefault("restart", "nginx")
        usual = {**USUAL, "interface": self.interface}
        if kind == "kernel.cmdline":
            usual["parameter"] = re.split("[= ]", value)[0]
        names = list(KINDS[kind].target)
        target = {name: usual.get(name, "") for name in names}
        target.update(zip(names[len(names) - len(words) :], words))
        if kind == "kernel.package" and isinstance(value, str):
            value = getattr(self.host.packages, value)
        return setting(kind, target, value, **options)

    def _told(self, verb: str) -> dict[str, Any]:
        """The fields of a request, beside those that a move tells ``with``."""
        of_t = {"tuning": self._tuning, "digest": "sha256:1"}
        asked = {"settings": self.own} if self._tuning in self._owns else {}
        usual: dict[str, dict[str, Any]] = {
            "plan": {**of_t, **asked},
            "verify": {**of_t, **asked},
            "confirm": {"epoch": 1, **of_t, **asked},
            "restore": {"epoch": 1, "tuning": self._tuning},
            "hand_over": {"epoch": 1, "rollout": "r1", "dry_run": False, **of_t, **asked},
        }
        more = self.move.pop("with", {})
        if verb == "planned":
            return {**self._planned, **more}
        if verb == "apply":
            return dict(self.host.change(*self.own, **{"tuning": self._tuning, **more}))
        return {**usual.get(verb, {}), **more}

    # What a move does.

    def write(self, files: dict[str, str | None]) -> None:
        """Files with their text; what has none is gone, a text that begins with -> is a link."""
        for name, text in files.items():
            path = self.host.path / name
            if text is None:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif text.startswith("-> "):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                path.symlink_to(text[3:])
            else:
                self.host.write(name, text)

    def make(self, directories: list[str]) -> None:
        for name in directories:
            (self.host.path / name).mkdir(parents=True, exist_ok=True)

    def modes(self, files: dict[str, int]) -> None:
        for name, mode in files.items():
            (self.host.path / name).chmod(mode)

    def _writing(self, change: Callable[[str, str, Put], None]) -> None:
        """What the kernel does with the text that is written into a file: it may be put there."""
        poke = Host.write_attribute

        def write(host: Host, name: str, text: str) -> None:
            change(name, text, lambda own: poke(host, name, own))

        self.patch.setattr(Host, "write_attribute", write)

    def refuses_write(self, files: dict[str, int]) -> None:
        """The kernel takes nothing into these files, by the number of an error."""

        def refuse(name: str, text: str, put: Put) -> None:
            refuse_one(files, name)
            put(text)

        self._writing(refuse)

    def makes(self, texts: dict[str, str]) -> None:
        """The kernel makes other texts of these."""
        self._writing(lambda name, text, put: put(texts.get(text.strip(), text)))

    def writes(self, _: object) -> None:
        """What is written into files of the kernel is noted."""
        note = self.written.append
        self._writing(lambda name, text, put: (note(text.strip()), put(text))[1])

    def pauses(self, _: object) -> None:
        """What is waited between two steps takes no time, and is noted."""
        self.patch.setattr(memory_watermarks, "PAUSE", 0.25)
        self.patch.setattr(time, "sleep", self.slept.append)

    def khugepaged(self, _: object) -> None:
        """Huge pages raise the watermarks."""

        def raise_it(name: str, text: str, put: Put) -> None:
            put(text)
            if name.endswith("transparent_hugepage/enabled"):
                most = max(int(self.host.read("proc/sys/vm/min_free_kbytes")), 112640)
                self.host.write("proc/sys/vm/min_free_kbytes", f"{most}\n")

        self._writing(raise_it)

    def raises_as_set(self, interrupt: str) -> None:
        """An interrupt is raised once more while its mask is set."""
        own = self.host.vectors

        def raise_it(name: str, text: str, put: Put) -> None:
            put(text)
            if f"/{own.numbers[interrupt]}/" in name:
                own.count(interrupt, 13)

        self._writing(raise_it)

    def unreadable(self, files: dict[str, int]) -> None:
        """The kernel tells nothing of these files, by the number of an error."""
        read = Host.read

        def refuse(host: Host, name: str) -> bytes:
            refuse_one(files, name)
            return read(host, name)

        self.patch.setattr(Host, "read", refuse)

    def reading(self, counted: str) -> None:
        """Looks at a file are counted."""
        read = Host.read

        def count(host: Host, name: str) -> bytes:
            self.looks += name == counted
            return read(host, name)

        self.patch.setattr(Host, "read", count)

    def maps(self, text: str) -> None:
        """What the kernel says of the pages of nginx."""
        self.patch.setattr(self.host.systemd, "maps", lambda: text)

    def breaks(self, _: object) -> None:
        """Every program breaks what reads it."""
        self.patch.setattr(Host, "attempt", lambda host, *words: words["x"])

    def chown(self, files: dict[str, int]) -> None:
        """Give files away, which only root can do."""
        for name, user in files.items():
            if os.geteuid() == 0:
                os.chown(self.host.path / name, user, user, follow_symlinks=False)

    def mode(self, name: str) -> str:
        return oct(self._status(name).st_mode & 0o7777)[2:]

    def is_of(self, name: str, user: str) -> bool:
        """Whether a file is of a user, where tests can give files away."""
        return os.geteuid() != 0 or self._status(name).st_uid == int(user)

    def _status(self, name: str) -> os.stat_result:
        return (self.host.path / name).lstat()

    def leads(self, name: str) -> str:
        """Where a link leads, below the root."""
        return str((self.host.path / name).resolve().relative_to(self.host.path))

    def fifo(self, name: str) -> None:
        os.mkfifo(self.host.path / name)

    def planned(self, told: dict[str, Any] | None) -> None:
        """The request to apply settings, as a plan sees them now, for ``fails`` or ``ask``."""
        self.settings(told)
        self._planned = self._told("apply")

    def edit(self, files: dict[str, list[str]]) -> None:
        """In each file a text is another one."""
        for name, pair in files.items():
            self.host.write(name, self.host.read(name).replace(*pair))

    def append(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            self.host.write(name, self.host.read(name) + text)

    def do(self, calls: dict[str, Any]) -> None:
        """Methods of doubles, with their arguments."""
        for path, arguments in calls.items():
            self.result = self._walk(path.split("."))(*(arguments or ()))

    def catalogue(self, name: str) -> None:
        """The settings of a tuning of ours for this host."""
        tuning, facts = load_tuning(ROOT / f"tunings/{name}.yaml"), self.host.ask("facts")
        assert misfits(tuning, facts) == [], self.where
        self._owns[self._tuning] = encoded(render(tuning, facts))

    def a_minute_passes(self, _: object) -> None:
        """Since a reboot was sent."""
        boot_id, since = self.host.read("run/edgetune-reboot").split()
        self.host.write("run/edgetune-reboot", f"{boot_id} {float(since) - 61:.3f}\n")

    def new_boot(self, _: object) -> None:
        """``OLD`` is the boot_id of the one before."""
        self.names = {**self.names, "OLD": self.host.boot_id}
        self.host.new_boot_id()

    def fails_by_epoch(self, told: list[Any]) -> None:
        """A verb of an owner with an epoch."""
        verb, epoch = told
        self.settings({"sysctl": "1"})
        usual = {"boot_id": self.host.boot_id} if verb == "reboot" else self._told(verb)
        before = self.whole()
        self.result = self.host.fail(verb, **{**usual, "epoch": epoch})
        assert self.whole() == before, self.where

    def misfit(self, told: list[str]) -> None:
        """Why a tuning of ours is not for this host."""
        tuning = load_tuning(ROOT / f"tunings/{told[0]}.yaml")
        self._compare("misfits", misfits(tuning, self.host.ask("facts"))[0], told[1])

    def catalogue_of_card(self, name: str) -> None:
        """Those of its settings that are ethtool's."""
        self.catalogue(name)
        of_card = ("nic.channels", "nic.ring", "nic.rss")
        self._owns[self._tuning] = [own for own in self.own if own["kind"] in of_card]

    def ring_is_full(self, _: object) -> None:
        card = self.host.card
        self._compare("ring", card.ring["rx"], card.most_ring["rx"])

    def processors(self, count: int) -> None:
        self.host.write("sys/devices/system/cpu/online", f"0-{count - 1}\n")

    def tuned_too(self, _: object) -> None:
        """Whatever else is set of the card, and taken back, its table stays of one queue."""
        card = self.host.card
        adaptive = {"adaptive-rx": "off"} if "adaptive-rx" in card.coalesce else {}
        others = [
            {"nic.channels": {"combined": card.most_channels["combined"]}},
            {"nic.ring": {"rx": card.most_ring["rx"]}},
            {"nic.features": {"generic-receive-offload": "off"}},
            {"nic.coalesce": {**adaptive, "rx-usecs": 70}},
        ]
        for number, other in enumerate(others):
            self.host.apply(*self._made(other), tuning=f"b{number}")
            self.table("equal 1")
        self.verified(True)
        for number in reversed(range(len(others))):
            self.host.restore(f"b{number}")
            self.table("equal 1")

    def plan(self, told: dict[str, Any] | None) -> None:
        """What a plan shows, which changes nothing."""
        own, before = self.settings(told), self.whole()
        self.result = self.host.plan(*own, tuning=self._tuning)
        assert self.whole() == before, f"{self.where}: a plan changes nothing"

    def ask(self, verb: str) -> None:
        self.result = self.host.ask(verb.replace("planned", "apply"), **self._told(verb))

    def fails(self, verb: str) -> None:
        """What is refused, or undone, leaves the host as it was."""
        told, before = self._told(verb), self.whole()
        self.result = self.host.fail(verb.replace("planned", "apply"), **told)
        if self.result["reason"] != "failed":
            after = self.whole()
            for counted in COUNTED:
                before.pop(counted, None), after.pop(counted, None)
            assert after == before, f"{self.where}: {differing(before, after)}"

    def apply(self, told: dict[str, Any] | None) -> None:
        own = self.settings(told)
        if self._before is None:
            self._before = self.whole()
        more = {"tuning": self._tuning, **self.move.pop("with", {})}
        self.result = self.host.apply(*own, **more)

    def sets(self, told: dict[str, Any] | None) -> None:
        """Apply, which proves itself and does nothing the second time; ``back`` comes at the end
        at the latest."""
        before, more = self.whole(), self.move.get("with", {})
        self.apply(told)
        result, rows = self.result, self.host.plan(*self.own, tuning=self._tuning)
        assert {row["status"] for row in rows} == {"noop"}, f"{self.where}: {rows}"
        self._others_as(before)
        self.verified(True)
        self.move["with"] = more
        self.apply(None)
        assert not self.result["changed"], f"{self.where}: it changes something again"
        self._stack.append((self._tuning, before))
        self.result = result

    def _others_as(self, before: dict[str, Any]) -> None:
        """What no setting of a card is about is as before."""
        kinds, now = {own["kind"] for own in self.own}, self.whole()
        if "card" in now:
            for part in {"channels", "ring", "coalesce"} - {kind[4:] for kind in kinds}:
                assert now["card"][part] == before["card"][part], f"{self.where}: {part}"
            if not {"nic.channels", "nic.rfs"} & kinds:
                queues = [name for name in before if "/queues/" in name]
                assert all(now[name] == before[name] for name in queues), self.where

    def back(self, calls: int | None) -> None:
        """Take a tuning back: all is as it was, after so many calls of ethtool."""
        tuning, before = self._stack.pop() if self._stack else (self._tuning, self._before)
        done = len(self.host.card.changes) if calls else 0
        assert self.host.restore(tuning)["changed"], f"{self.where}: nothing changed"
        if calls:
            self._compare("calls back", len(self.host.card.changes) - done, calls)
        after = self.whole()
        assert before == after, f"{self.where}: {differing(before or {}, after)}"

    def same(self, _: object) -> None:
        """All is as before the first change."""
        after = self.whole()
        assert self._before == after, f"{self.where}: {differing(self._before or {}, after)}"

    def mark(self, _: object) -> None:  # type: ignore[override]
        """What is now is what ``same`` means."""
        self._before = self.whole()

    def restore(self, changed: bool | None) -> None:
        self.ask("restore")
        if changed is not None:
            assert self.result["changed"] is changed, self.where

    def confirm(self, kept: bool) -> None:
        self.result = self.host.ask("confirm", **self._told("confirm"))
        assert self.result["confirmed"] is kept, f"{self.where}: {self.result}"

    def boot(self, problems: list[str] | None) -> None:
        """Boot, where init runs our hook if it is there: all its problems."""
        host = self.host
        if hasattr(host, "boot_anew"):
            found = host.boot_anew()
        elif isinstance(host, NicHost) or hasattr(host, "programs"):
            found = host.boot_hook() if self._is_hooked else []
        else:
            host.run_hook = self._run_hook
            found = host.boot().stderr.splitlines()
        self._compare("problems", found, problems or [])

    @property
    def _is_hooked(self) -> bool:
        hooks = ("systemd/system/edgetune.service", "init.d/S99edgetune")
        return any(self.host.exists(f"etc/{name}") for name in hooks)

    def _run_hook(self) -> Any:
        # Not as a process, which the script of init would be.
        if not self._is_hooked:
            return SimpleNamespace(stderr="")
        with self.patch.context() as patch:
            patch.setattr(unattended, "BOOT_WAIT", 0.1)
            return self.host.run_copy("boot")

    def late(self, problems: list[str] | None) -> None:
        """What the boot hook left for when the network is there."""
        with self.patch.context() as patch:
            patch.setattr(unattended, "LATE_WAIT", 0.1)
            found = unattended.late(Host(str(self.host.path)))
        self._compare("problems", found, problems or [])

    def old_hook(self, problems: list[str] | None) -> None:
        """The boot hook alone, in the same boot."""
        with self.patch.context() as patch:
            patch.setattr(unattended, "BOOT_WAIT", 0.1)
            found = unattended.boot(Host(str(self.host.path)))
        self._compare("problems", found, problems or [])

    def start_nginx(self) -> None:
        program = self.host.path / "usr/local/sbin/systemctl"
        subprocess.run([program, "start", "nginx"], env=self.host.environment, check=True)

    def console(self, words: str) -> None:
        """The agent's copy, run by a person or a timer; its problems, one a line."""
        self.result = self.host.run_copy(*words.split())

    def revert(self, _: object) -> None:
        """Nobody confirmed in time."""
        self.host.let_deadline_pass(self._tuning)
        unattended.revert(Host(str(self.host.path)), self._tuning)

    def journal(self, fields: dict[str, Any]) -> None:
        """Fields of what the host noted, and of its one entry, are others."""
        entry = fields.pop("entry", None)
        if entry:
            (was,) = self.host.journal(self._tuning)["entries"]
            fields["entries"] = [{**was, **entry}]
        self.host.note(self._tuning, **fields)

    # What is seen then.

    def verified(self, expected: bool) -> None:
        own = {"tuning": self._tuning, "settings": self.own}
        told = self.host.ask("verify", **own)
        wrong = [row for row in told["settings"] if not row["ok"]]
        assert told["verified"] is expected, f"{self.where}: {wrong}"

    def rows(self, expected: list[dict[str, Any]]) -> None:
        """Fields of the rows of a plan, or of what was verified."""
        rows = self.result if isinstance(self.result, list) else self.result["settings"]
        self._compare("rows", rows, expected)

    def row(self, expected: dict[str, Any]) -> None:
        """Fields of the first one; a text is why it is unsupported."""
        rows = self.result if isinstance(self.result, list) else self.result["settings"]
        self._compare("row", rows[0], expected)

    def status(self, expected: str) -> None:
        """Of each row."""
        self._compare("status", " ".join(row["status"] for row in self.result), expected)

    def why(self, text: str) -> None:
        """The host cannot have the first of its settings, says why, and refuses to apply them."""
        row, before = self.host.plan(*self.own, tuning=self._tuning)[0], self.whole()
        assert row["status"] == "unsupported", f"{self.where}: {row}"
        self._compare("reason", row["reason"], text)
        told = {"tuning": self._tuning, **self.move.pop("with", {})}
        error = self.host.fail("apply", **self.host.change(*self.own, **told))
        assert error["reason"] == "refused" and row["reason"] in error["message"], error
        assert self.whole() == before, f"{self.where}: {differing(before, self.whole())}"

    def says(self, text: str) -> None:
        """The message of an error, or the only row's reason."""
        self._compare("message", self.result["message"], text)

    def field(self, name: str) -> None:
        """The request was a bad one, for that field."""
        seen = self.result["reason"], self.result["field"]
        assert seen == ("bad_request", name), f"{self.where}: {self.result}"

    def reads(self, files: dict[str, str | None]) -> None:
        """Files with their text, without a newline at its end; null for what is not there."""
        for name, expected in files.items():
            seen = self.host.read(name) if self.host.exists(name) else None
            if seen is not None and expected is not None and not expected.endswith("\n"):
                seen = re.sub("\n$", "", seen)
            self._compare(name, seen, expected)

    def alike(self, names: list[str]) -> None:
        """Files of one text."""
        assert len({self.host.read(name) for name in names}) == 1, f"{self.where}: {names}"

    def lacks(self, names: str) -> None:
        """No such files."""
        there = [name for name in names.split() if self.host.exists(name)]
        assert not there, f"{self.where}: {there}"

    def drift(self, expected: list[dict[str, Any]]) -> None:
        """What a sample tells of it."""
        self.result = self.host.ask("sample")
        assert self.result["gauges"]["drifted"] == len(self.result["drift"]), self.where
        self._compare("drift", self.result["drift"], expected)

    def leaves(self, expected: list[str]) -> None:
        """Files in the directory of the agent's state."""
        self._compare("leftovers", self.host.leftovers(), expected)

    def runs(self, calls: list[str]) -> None:
        """Commands that ran, in that order."""
        left = list(self.host.commands)
        for call in calls:
            assert call in left, f"{self.where}: {call} is not among {left}"
            del left[: left.index(call) + 1]

    def never_runs(self, text: str) -> None:
        found = [call for call in self.host.commands if text in call]
        assert not found, f"{self.where}: {found}"

    def ran(self, *words: str) -> int:
        """How often."""
        return sum(" ".join(words) in call for call in self.host.commands)

    def values(self, path: str) -> list[Any]:
        return [*self._walk(path.split(".")).values()]

    def count_of(self, path: str) -> int:
        """How long a list is."""
        return len(self._walk(path.split(".")))

    def count(self, what: str, *words: str) -> int:
        """How often a list of the host has some words."""
        return int(getattr(self.host, what).count(" ".join(words)))

    def counters(self, expected: dict[str, int]) -> None:
        """All of a sample."""
        self._compare("counters", sorted(self.result["counters"]), sorted(expected))
        self._compare("counters", self.result["counters"], expected)

    def serves(self, expected: bool) -> None:
        """Whether the host says that it is ready."""
        told = self.host.ask("facts")["agent_state"]["ready"]
        assert told is expected, f"{self.where}: {told}"

    def _steered(self, do: str) -> Any:
        more = self.move.pop("with", {})
        steered = Steered(self.host, "flag", file="/etc/edgetune/drained", settle=20)
        return steered.ask(do, **more)

    def flag(self, do: str) -> None:
        """The flag for readers on the host, with twenty seconds for them to follow."""
        self._take(self._steered(do), "result")

    def no_flag(self, do: str) -> None:
        self._take(self._steered(do), "error")

    def _take(self, reply: dict[str, Any], part: str) -> None:
        """What a drain driver of the agent answers: a result, or an error."""
        assert reply["ok"] == (part == "result"), f"{self.where}: {reply}"
        self.result = reply[part]

    def prometheus(self, missing: str) -> None:
        """Why the file for Prometheus is not there."""
        asked = self.move.pop("with", {"directory": f"/{PROMETHEUS}"})
        self._compare("missing", self.host.ask("textfile", **asked)["missing"], missing)

    def prom(self, tunings: list[str]) -> None:
        """What the file tells."""
        lines = self.host.read(f"{PROMETHEUS}/edgetune.prom").splitlines()
        told = [f'edgetune_applied_info{{tuning="{name}"}} 1' for name in tunings]
        own = [f'edgetune_boot_info{{boot_id="{self.host.boot_id}"}} 1', *told]
        self._compare("file", [line for line in lines if line[0] != "#"], own)

    def lists(self, names: str) -> None:
        """What the kernel lists in /proc/net."""
        for name in names.split():
            self.host.write(f"proc/net/{name}", LISTS[name])

    def full(self, _: object) -> None:
        """The disk."""
        FullDisk(self.patch)

    def give_away(self, name: str) -> None:
        """To somebody else than root, or as near to that as this user can."""
        if os.geteuid() == 0:
            self.chown({name: 65534})
        else:
            (self.host.path / name).chmod(0o777)

    # How a tuning, and edgetune itself, leave a host.

    def not_handed(self, text: str) -> None:
        """A hand-over is refused, in a dry run and else, with nothing changed."""
        told = self._told("hand_over")
        self._stays("hand_over", text, [{**told, "dry_run": True}, told])

    def not_held(self, text: str) -> None:
        self.result = self.host.fail("hand_over", **self._told("hand_over"))
        self._compare("message", self.result["message"], f"...{text}")
        self.patch.undo()

    def loses_with(self, told: list[str]) -> None:
        """Once a file is removed another one has this text."""
        remove, (removed, name, text) = Host.remove, told

        def loses(host: Host, own: str, only_draft: bool = False) -> None:
            remove(host, own, only_draft)
            if own == removed:
                self.host.write(name, text)

        self.patch.setattr(Host, "remove", loses)

    def stays(self, text: str) -> None:
        """edgetune is not removed, in a dry run only if a tuning stands, with nothing changed."""
        usual = {"epoch": 9, "dry_run": False, **self.move.get("with", {})}
        self._stays("uninstall", text, [usual])

    def _stays(self, verb: str, text: str, asked: list[dict[str, Any]]) -> None:
        before = self._everything()
        for told in asked:
            error = self.host.fail(verb, **told)
            assert error["reason"] == "refused", f"{self.where}: {error}"
            self._compare("message", error["message"], text)
        after = self._everything()
        assert before == after, f"{self.where}: {differing(before, after)}"

    def _everything(self) -> dict[str, Any]:
        """All below the root but the lock and the traces of the stubs; also what a restore
        leaves."""
        found: dict[str, Any] = {}
        for entry in below(str(self.host.path), ["stub"]):
            status = entry.stat(follow_symlinks=False)
            own = (status.st_mode, status.st_uid, status.st_gid, content(entry))
            found[entry.path[len(str(self.host.path)) :]] = own
        left_out = ("/run/edgetune.lock", "/var/lib/edgetune/epoch")
        return {name: own for name, own in found.items() if name not in left_out}

    def unmarked(self, _: object) -> None:
        """Nothing tells of edgetune below the root."""
        for name, own in self._everything().items():
            text = own[3] if isinstance(own[3], bytes) else b""
            # The stubs are of the test.
            told = "edgetune" in name or b"edgetune" in text
            assert not told or "/sbin/" in name, f"{self.where}: {name}"

    def lives(self, _: object) -> None:
        """A whole life: the text file, tunings that came and went over boots, drains."""
        host, asked = self.host, self.move.get("with")
        self.make(["run", "var/lib", PROMETHEUS, "etc/app"])
        self._life = self._everything()
        host.ask("textfile", directory=f"/{PROMETHEUS}")
        for do in ("withdraw", "restore"):
            self.move["with"] = {"file": "/etc/app/drained"}
            self.flag(do)
        host.ask("ready", epoch=1, rollout="r1", ready=False, ports=[])
        host.apply(*self._made({"sysctl": "4096", "memory.thp": "never"}), tuning="queue")
        host.apply(*self._made({"sysctl": "8192"}), tuning="longer")
        self.old_hook(None)
        host.ask("ready", epoch=2, rollout="r1", ready=True, ports=[])
        host.restore("queue", epoch=3)
        host.restore("longer", epoch=3)
        self.move["with"] = asked or {}

    def dies_at(self, number: int) -> None:
        """Remove edgetune, but die with the removal of a file."""
        remove, seen = Host.remove, list[str]()

        def dies(host: Host, name: str, only_draft: bool = False) -> None:
            seen.append(name)
            if len(seen) == number:
                raise KeyboardInterrupt
            remove(host, name, only_draft)

        with self.patch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Host, "remove", dies)
            self.host.ask("uninstall", epoch=9, dry_run=False)

    def uninstalls(self, _: object) -> None:
        """After it all is as before; a dry run told so and changed nothing, and a second time
        there is nothing to do."""
        used = self._everything()
        shown = self.host.ask("uninstall", epoch=9, dry_run=True)
        assert self._everything() == used, self.where
        told = self.host.ask("uninstall", epoch=9, dry_run=False)
        assert told["files"] == shown["files"] and told["left"] == shown["left"] == [], told
        again = self.host.ask("uninstall", epoch=9, dry_run=False)
        assert (again["files"], again["left"]) == ([], []), again
        after = self._everything()
        assert after == self._life, f"{self.where}: {differing(self._life, after)}"
        self.leaves([])

    # Doubles.

    def card(self, told: str | dict[str, Any]) -> None:
        """Have a card, of which some things are otherwise."""
        more = dict(told) if isinstance(told, dict) else {"name": told}
        self._card = more.pop("name")
        self.host.card = self.host.insert(self._card, more.pop("rss", None), **more)

    def interrupts(self, told: dict[str, Any]) -> None:
        """A machine (``of``) with a card whose queues raise interrupts."""
        sizes = told.pop("of", (2, 4, 2))
        self.machine = Machine(*sizes, *([told.pop("offline")] if "offline" in told else []))
        self.machine.install(self.host)
        self.host.vectors = Vectors(self.host, self.machine, **told).install()

    def cpus(self, sizes: list[int]) -> None:
        """A machine whose card raises no interrupts that tell of their queues."""
        Machine(*sizes).install(self.host)

    def second_card(self, _: object) -> None:
        own = {"interface": "eth1", "queues": 2, "first": 128}
        self.host.second = Vectors(self.host, self.machine, **own).install()

    def allowed(self, expected: str) -> None:
        """The CPUs of the interrupts of queues; those of others are left alone."""
        own, every = self.host.vectors, f"0-{self.machine.count - 1}\n"
        self._compare("allowed", " ".join(own.allowed().values()), expected)
        others = {own.read(name) for name in set(own.names) - set(own.of_queues)}
        assert others <= {every}, f"{self.where}: {others}"

    def left(self, cpus: str) -> None:
        """The CPUs that are left for nginx, by its drop-in and by its process."""
        name = f"{NGINX_DROP_INS}/90-edgetune-0001-t.cpus.conf"
        text = f"...[Service]\nCPUAffinity=\nCPUAffinity={cpus}"
        self.reads({name: text, "proc/77/status": f"Cpus_allowed_list:\t{cpus}"})

    def down(self, _: object) -> None:
        """An interface that is down has no interrupts, and another boot no masks."""
        self.host.write("sys/class/net/eth0/flags", "0x1002\n")
        self.host.write("proc/interrupts", "  CPU0\n")
        for mask in self.host.path.glob("sys/class/net/eth0/queues/tx-*/xps_cpus"):
            mask.write_text("0\n")

    def up(self, _: object) -> None:
        self.host.write("sys/class/net/eth0/flags", "0x1003\n")
        self.host.vectors.request()

    def rename(self, pair: list[str]) -> None:
        old, new = pair
        self.host.make_directory((self.host.path / new).parent)
        (self.host.path / old).rename(self.host.path / new)

    def stopping(self, name: str) -> None:
        """A file is empty once a unit was stopped."""
        run, file = Host.run, self.host.path / name

        def stop(host: Host, program: str, *arguments: str) -> str:
            told = run(host, program, *arguments)
            file.write_text("" if arguments[0] == "stop" else file.read_text())
            return told

        self.patch.setattr(Host, "run", stop)

    def no_detach(self, _: object) -> None:
        """Nothing can run on."""
        self.patch.setattr(Host, "detach", fail)

    def late_without_lock(self, _: object) -> None:
        with self.patch.context() as patch, pytest.raises(Failed):
            patch.setattr(unattended, "LATE_WAIT", 0.1)
            patch.setattr(Host, "lock", fail)
            unattended.late(Host(str(self.host.path)))

    def without(self, files: dict[str, str]) -> None:
        """Files lose the lines with these words."""
        for name, word in files.items():
            lines = self.host.read(name).splitlines(keepends=True)
            self.host.write(name, "".join(line for line in lines if word not in line))

    def fresh(self, _: object) -> None:
        """The table of the card is that of its driver again."""
        self.host.card.rss = make_card(self._card).rss

    def refuse_channels(self, _: object) -> None:
        def refuse(channels: Any) -> None:
            raise Complaint("netlink error: Invalid argument")

        self.patch.setattr(self.host.card, "set_channels", refuse)

    def older_channels(self, _: object) -> None:
        """The journal has the channels in the form of older agents."""
        (entry,) = self.host.journal()["entries"]
        was = entry["snapshot"]
        old = {"channels": was["parts"], "steering": was["steering"]}
        self.host.note(entries=[{**entry, "snapshot": old}])

    def table(self, words: str) -> None:
        """The indirection table that these words make."""
        card = self.host.card
        made = copy.deepcopy(card.rss)
        made.change(words.split(), card.rings)
        self._compare("table", card.rss.table, made.table)

    def no_timers(self, _: object) -> None:
        """What would run on is noted."""
        self.patch.setattr(Host, "detach", lambda _, command: self.started.append([*command]))

    def steer(self, _: object) -> None:
        """Something steers packets to every queue."""
        steer(self.host)

    def service(self, workers: dict[str, str] | None) -> None:
        """nginx has processes."""
        run_nginx(self.host, **(workers or {}))

    def route(self, lines: list[str]) -> None:
        """Have a table of routes."""
        self.host.programs = self.host.routes = instead(self.patch, Routes(self.host))
        self.fresh_routes(lines)

    def fresh_routes(self, lines: list[str]) -> None:
        """Nothing was changed of these."""
        known = {"DEFAULT": DEFAULT, "SECOND": SECOND}
        self.host.routes.lines = [known.get(line, line) for line in lines]

    def moves_to(self, gateway: str) -> None:
        """Every route leads over another gateway."""
        lines = self.host.routes.lines
        lines[:] = [re.sub(r"\bvia \S+", f"via {gateway}", line) for line in lines]

    def options(self, number: str) -> dict[str, Any]:
        """Those of a route."""
        found = Route(self.host.routes.lines[int(number)]).options
        return {name: list(own) for name, own in found.items()}

    def systemd(self, more: dict[str, Any] | None) -> None:
        self.host.programs = self.host.systemd = instead(
            self.patch, Systemd(self.host, **(more or {}))
        )

    def tmpfs(self, mpol: str) -> None:
        self.host.programs = self.host.mount = instead(self.patch, Tmpfs(self.host, mpol))

    def addresses(self, _: object) -> None:
        """ip(8) tells those of the interfaces."""
        instead(self.patch, Addresses())


def refuse_one(files: dict[str, int], name: str) -> None:
    """Raise the error that a file is to have."""
    if name[1:] in files:
        raise OSError(files[name[1:]], os.strerror(files[name[1:]]))


def fail(*_: Any) -> None:
    raise Failed("it fails")


def differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return {name: (before.get(name), after.get(name)) for name in sorted(names)}
