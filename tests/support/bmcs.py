# SPDX-License-Identifier: Apache-2.0
"""BMCs in memory, which answer as `edgetune.net.bmc.bmcs.Bmcs` promises, from a few facts each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Callable

from edgetune.net.bmc.payload import BmcError
from edgetune.net.result import HostResult
from edgetune.site.inventory import Host

SNOOP = "SnoopMode"
HOME, EARLY, COD = "HomeSnoop", "EarlySnoop", "ClusterOnDie"
_MODES = {"home": HOME, "early": EARLY, "cluster_on_die": COD}
_WORDS = {value: word for word, value in _MODES.items()}
RESETS = ("On", "ForceOff", "GracefulRestart", "ForceRestart")


class Bmcs:
    """What was asked is in ``asked``, what was done to a machine in ``sent``.

    ``faults`` of a host: ``unreachable``, ``refuses`` (the login), ``busy``, ``posts`` (says that
    its machine is in POST), ``unknown`` (acts, and its answer is lost), ``ignores`` (takes a
    change, and the boot does nothing), ``job_fails``, ``complains`` (the boot does nothing, and the
    BIOS says so until one does something), ``reverts`` (the boot after the next has the old value
    again), ``slow`` (reads late what a boot did), ``mute`` (of its resets it does none). ``resets``
    are those that each offers; it turns those in ``turns_down`` down. ``off`` are machines without
    power.
    """

    def __init__(self, around: Callable[[str], AbstractContextManager[None]]) -> None:
        names = [f"e{i:03d}" for i in range(8)]
        self.current = {name: {SNOOP: EARLY, "BootMode": "Uefi"} for name in names}
        self.pending: dict[str, dict[str, Any]] = {name: {} for name in names}
        self.system = {name: f"uuid-{name}" for name in names}
        self.faults: dict[str, set[str]] = {name: set() for name in names}
        self.said = {"power": "On", "boot_progress": "", "health": "OK", "events": []}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.calls: list[tuple[str, list[str]]] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.resets = dict.fromkeys(names, RESETS)
        self.turns_down: set[str] = set()
        self.off: set[str] = set()
        self.failed_jobs: set[str] = set()
        self.complaints: set[str] = set()
        self.restart: Callable[[str, str], bool] = lambda name, kind: False
        self._before: dict[str, dict[str, Any]] = {}
        self._around = around

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float | None = None,
        permit: Callable[[], None] = lambda: None,
        refusals: int = 1,
    ) -> dict[str, HostResult]:
        self._permit, self.refusals = permit, refusals
        self.calls.append((verb, [host.name for host in hosts]))
        return {host.name: self._answer(host, verb, request) for host in hosts}

    def boot(self, name: str) -> None:
        """The machine runs its POST: what is pending comes into force."""
        if name in self._before:
            self.current[name].update(self._before.pop(name))
        pending = self.pending[name]
        if "job_fails" in self.faults[name] and pending:
            self.failed_jobs.add(name)
        elif "complains" in self.faults[name] and pending:
            self.complaints.add(name)
        elif "ignores" not in self.faults[name]:
            before = {attribute: self.current[name].get(attribute) for attribute in pending}
            if "reverts" in self.faults[name] and pending:
                self._before[name] = before
            self.current[name].update(pending)
            self.complaints -= {name} if pending else set()
        self.pending[name] = {}

    def mode(self, name: str) -> tuple[str, str | None]:
        """The snoop mode now, and what is pending for it."""
        return self.current[name][SNOOP], self.pending[name].get(SNOOP)

    def sent_to(self, name: str, what: str) -> list[Any]:
        """What was sent to the BMC of a host: ``set``, ``cancel`` or ``reset``."""
        return [more for host, sent, more in self.sent if (host, sent) == (name, what)]

    def told(self, verb: str) -> list[str]:
        """Who was asked for ``verb``, in order."""
        return [name for name, asked, _ in self.asked if asked == verb]

    def _answer(
        self, host: Host, verb: str, request: Callable[[Host], Mapping[str, Any]]
    ) -> HostResult:
        try:
            return self._one(host, verb, dict(request(host)))
        except BmcError as error:
            return HostResult(host.name, error=str(error), reason=error.reason)

    def _one(self, host: Host, verb: str, request: dict[str, Any]) -> HostResult:
        name, faults = host.name, self.faults[host.name]
        self.asked.append((name, verb, request))
        if host.bmc is None:
            return HostResult(name, error="has no BMC in the inventory", reason="refused")
        for fault, reason, text in (
            ("unreachable", "unreachable", "timed out"),
            ("refuses", "auth", "the login is refused"),
            ("busy", "busy", "the machine is in POST"),
            ("odd", "garbage", "is no JSON object"),
        ):
            if fault in faults:
                return HostResult(name, error=text, reason=reason)
        sent = len(self.sent)
        result: HostResult = getattr(self, "_" + verb)(name, request)
        if "unknown" in faults and len(self.sent) > sent:
            return HostResult(name, error="the answer is lost", reason="unknown")
        return result

    def _facts(self, name: str, request: dict[str, Any]) -> HostResult:
        resets = list(self.resets[name])
        machine = {"system": self.system[name], "serial": "", "sku": ""}
        return HostResult(name, {**machine, "resets": resets})

    def _plan(self, name: str, request: dict[str, Any]) -> HostResult:
        foreign = self._foreign(name, [request["ours"]])
        if foreign:
            return foreign
        data = {
            **self._facts(name, request).data,
            "bios_version": "2.13.0",
            "attributes": dict(self.current[name]),
            "settings": [self._row(name, setting) for setting in request["settings"]],
        }
        return HostResult(name, data)

    def _row(self, name: str, setting: Mapping[str, Any]) -> dict[str, Any]:
        logical = setting["kind"] == "bios.snoop_mode"
        attribute = SNOOP if logical else setting["target"]["attribute"]
        if attribute not in self.current[name]:
            nothing = {"runtime": None, "persistent": None, "attributes": {}}
            reason = f"this machine has no attribute {attribute}"
            return {**_row(setting, "unsupported"), **nothing, "reason": reason}
        now = self.current[name][attribute]
        pending = self.pending[name].get(attribute)
        wanted = _MODES[setting["value"]] if logical else setting["value"]
        words: dict[str, Any] = _WORDS if logical else {}
        after = now if pending is None else pending
        return {
            **_row(setting, "noop" if wanted == now == after else "change"),
            "runtime": words.get(now, now),
            "persistent": words.get(after, after),
            "attributes": {attribute: {"current": now, "pending": pending, "wanted": wanted}},
        }

    def _set(self, name: str, request: dict[str, Any]) -> HostResult:
        wanted, pending, now = request["attributes"], self.pending[name], self.current[name]
        foreign = self._another(name, request) or self._foreign(name, [request["ours"], wanted])
        if foreign:
            return foreign
        needed = {each: value for each, value in wanted.items() if now[each] != value}
        changed = needed != pending
        if changed:
            what = "set" if needed else "cancel"
            self._permit()
            with self._around(f"{name} BIOS {what}"):
                self.sent.append((name, what, dict(wanted)))
                self.pending[name] = dict(needed)
                self.failed_jobs.discard(name)
        job = f"/jobs/{name}" if needed else ""
        return HostResult(name, {"changed": changed, "job": job, "boot": bool(needed)})

    def _check(self, name: str, request: dict[str, Any]) -> HostResult:
        state, reason = self._state(name, request)
        names = {**request["ours"], **request["attributes"]}
        data = {
            "state": state,
            "reason": reason,
            "current": {each: self.current[name].get(each) for each in names},
            "pending": {n: value for n, value in self.pending[name].items() if n in names},
            "foreign": self._pending_besides(name, [request["ours"], request["attributes"]]),
            "messages": ["it was not taken"] if name in self.complaints else [],
        }
        return self._another(name, request) or HostResult(name, data)

    def _state(self, name: str, request: dict[str, Any]) -> tuple[str, str]:
        if request["job"] and name in self.failed_jobs:
            return "failed", "its job: Unable to apply"
        if "slow" in self.faults[name]:
            return "running", "settings are not through yet"
        pending = self.pending[name]
        now = {**self.current[name], **pending}
        for attribute, value in request["attributes"].items():
            if now.get(attribute) != value:
                is_now = self.current[name].get(attribute)
                state = "failed" if name in self.complaints else "absent"
                return state, f"{attribute} is {is_now}, and {value} is not pending"
        ours = {*request["attributes"].items(), *request["ours"].items()}
        if ours & pending.items():
            return "boot", "waits for a boot"
        return ("failed", "it was not taken") if name in self.complaints else ("done", "")

    def _reset(self, name: str, request: dict[str, Any]) -> HostResult:
        another = self._another(name, request)
        if another:
            return another
        kind = request["kind"]
        runs = self.said["boot_progress"] == "OSRunning"
        if kind == "ForceRestart" and not (request["os_answers"] or runs):
            return HostResult(name, error="may be in POST", reason="refused")
        if kind not in self.resets[name]:
            return HostResult(name, error=f"takes no {kind}", reason="refused")
        if kind in self.turns_down:
            return HostResult(name, error=f"answered 400 to {kind}", reason="failed")
        if (kind == "On") != (name in self.off):
            return HostResult(name, error="has not that power", reason="busy")
        if "posts" in self.faults[name] and not request.get("disbelieve_post") and kind != "On":
            return HostResult(name, error="the machine is in POST", reason="busy")
        self._permit()
        with self._around(f"{name} reset {kind}"):
            self.sent.append((name, "reset", kind))
            if "mute" not in self.faults[name] and self.restart(name, kind):
                self.off ^= {name} if kind in ("On", "GracefulShutdown") else set()
        return HostResult(name, {"sent": True})

    def _evidence(self, name: str, request: dict[str, Any]) -> HostResult:
        return HostResult(name, dict(self.said))

    def _another(self, name: str, request: Mapping[str, Any]) -> HostResult | None:
        known = request.get("system") or request.get("known", {}).get("system", "")
        if known in ("", self.system[name]):
            return None
        text = f"the machine is {self.system[name]}, not {known}"
        return HostResult(name, error=text, reason="refused")

    def _foreign(self, name: str, ours: Sequence[Mapping[str, Any]]) -> HostResult | None:
        foreign = self._pending_besides(name, ours)
        if not foreign:
            return None
        text = f"changes of somebody else wait for the next boot: {', '.join(foreign)}"
        return HostResult(name, error=text, reason="refused")

    def _pending_besides(self, name: str, ours: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"{attribute} ({self.current[name].get(attribute)} -> {value})"
            for attribute, value in self.pending[name].items()
            if all(own.get(attribute) != value for own in ours)
        ]


def _row(setting: Mapping[str, Any], status: str) -> dict[str, Any]:
    return {"id": setting["id"], "status": status, "wanted": setting["value"], "reason": None}
