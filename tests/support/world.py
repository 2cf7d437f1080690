# SPDX-License-Identifier: Apache-2.0
"""A PoP with a rollout on it, whose load balancer and hosts a test controls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Callable, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import Head, Quarantine
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.reading import encoded
from edgetune.base.errors import DrainError, HostError
from edgetune.net.hosts.answers import read_answer
from edgetune.net.result import ANOTHER_MACHINE, HostResult
from edgetune.net.traffic import DrainDriver, Server
from edgetune.report.answers import text_of
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.planning import preflight
from edgetune.rollout.record.rollout import load_plan, read_rollout, save_plan
from edgetune.rollout.steps import check_baseline
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.begin_rollback import begin_rollback
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.set_bios import set_bios
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts
from edgetune.rollout.store.records import Store
from tests.support.agent_answers import RESULTS, ROW
from tests.support.bmcs import Bmcs
from tests.support.builders import concluded, inventory_document, observed, plan, tuning, write_yaml

# What failed is looked at a second time; here at once.
preflight._AGAIN = check_baseline._LOOK_AGAIN = 0.0

_FIRST = (begin_drain, check_drained)
_LAST = (reboot_hosts, check_rebooted, verify_hosts, undrain_hosts)
_WAYS = {
    "change": (*_FIRST, set_bios, apply_tuning, *_LAST),
    "sham": (*_FIRST, set_bios, *_LAST),
    "restore": (*_FIRST, check_rebooted, set_bios, restore_hosts, *_LAST),
}

KEY = (
    Ed25519PrivateKey.generate()
    .private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    .decode("ascii")
)
"""A key that no host permits."""

CHANGING_VERBS = ("ready", "apply", "confirm", "restore", "reboot", "uninstall", "hand_over")
_DISTURBING_VERBS = ("apply", "restore", "reboot")


def step_named(name: Any) -> Any:
    """A step of the library by its name, or the step itself."""
    if not isinstance(name, str):
        return name
    module = {"begin_drain": "drain_hosts"}.get(name, name)
    room = next(r for r in ("rollout", "report") if find_spec(f"edgetune.{r}.steps.{module}"))
    return getattr(import_module(f"edgetune.{room}.steps.{module}"), name)


def shown(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a step, with its text as an action answers with it."""
    return {**result, "text": text_of(result["text"])} if "text" in result else result


class Died(BaseException):
    """The process that carried out a step is gone; nothing in it may catch this."""


class Moments:
    """Counts the moments just before and just after each side effect; a test may die at one,
    or have ``at`` called at each."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.die_at = -1
        self.at: Callable[[str], None] = lambda what: None

    @contextmanager
    def around(self, what: str) -> Iterator[None]:
        self._pass(f"before {what}")
        yield
        self._pass(f"after {what}")

    def _pass(self, moment: str) -> None:
        self.seen.append(moment)
        self.at(moment)
        if len(self.seen) - 1 == self.die_at:
            raise Died(moment)


class Balancer(DrainDriver):
    """A load balancer in memory; with ``clients`` every server in service carries sessions.

    ``state`` has for each server "ready", "drain" or "maint". Servers in ``leaving`` may still
    get requests while they are withdrawn. One that is not ``counting`` tells no sessions. ``idle``
    says why servers get no requests that nobody withdrew, ``overridden`` what may let them in
    again. Those in ``lets_in`` are let in again before each look, as by an agent check.
    """

    advice = "let edgetune set states of servers"

    def __init__(self, moments: Moments, not_ready: Set[str]) -> None:
        self.state = {f"e{i:03d}": "ready" for i in range(8)}
        self.addresses = {name: f"127.0.9.{i}" for i, name in enumerate(self.state, 1)}
        self.up = dict.fromkeys(self.state, True)
        self.sessions = dict.fromkeys(self.state, 0)
        self.clients, self.refusal = False, ""
        self.weights: dict[str, int | None] = dict.fromkeys(self.state, 16)
        self.leaving: set[str] = set()
        self.idle: dict[str, str] = {}
        self.overridden: dict[str, str] = {}
        self.lets_in: set[str] = set()
        self.counting = self.passing = self.checking = True
        self.gone = ""
        self.heeds_marker = True
        self.log: list[tuple[str, str]] = []
        self._moments, self._not_ready = moments, not_ready

    def servers(self) -> Mapping[str, Server]:
        if self.gone:
            raise DrainError(f"{self.gone}: does not answer")
        self.state.update(dict.fromkeys(self.lets_in, "ready"))
        found = {name: self._server(name) for name in self.state}
        if self.clients:
            # What is open when a server leaves the service ends before the next look.
            self.sessions = {name: 2 * each.is_serving for name, each in found.items()}
        return found

    def withdraw(self, server: str) -> None:
        if self._known(server) == "ready":
            self._set(server, "drain")

    def isolate(self, server: str) -> None:
        self._set(server, "maint")

    def restore(self, server: str, withdrawn: str = "") -> None:
        self._set(server, withdrawn or "ready")

    def set_weight(self, server: str, weight: int) -> None:
        self._known(server)
        with self._moments.around(f"{server} weighs {weight}"):
            self.log.append((server, str(weight)))
            self.weights[server] = weight

    def _set(self, server: str, state: str) -> None:
        self._known(server)
        with self._moments.around(f"{server} {state}"):
            self.log.append((server, state))
            self.state[server] = state

    def _known(self, server: str) -> str:
        if server not in self.state:
            raise DrainError(f"no server {server}")
        return self.state[server]

    def refuses_changes(self) -> str:
        return self.refusal

    def forget(self) -> None:
        """What a reload without a state file does."""
        self.state = dict.fromkeys(self.state, "ready")
        self.servers()

    def carries(self, server: str) -> bool:
        """Whether requests are under way on it."""
        return self.sessions.get(server, 0) > 0

    def look(self, server: str) -> int:
        """How many sessions the host itself counts."""
        self.servers()
        return self.sessions[server]

    def _server(self, name: str) -> Server:
        up = self.up[name] and not (self.heeds_marker and name in self._not_ready)
        withdrawn = "" if self.state[name] == "ready" else self.state[name]
        leaving = bool(withdrawn) and name in self.leaving
        sessions = self.sessions[name] if self.counting else None
        return Server(
            name,
            withdrawn,
            up,
            sessions,
            self.addresses[name],
            80,
            leaving=leaving,
            idle=self.idle.get(name, ""),
            weight=self.weights[name],
            overridden_by=self.overridden.get(name, ""),
            passing=self.passing,
            checked=self.checking,
        )


class Hosts:
    """Hosts that answer as agents do, from a few facts each.

    ``behind`` tells which machine answers SSH in place of another.
    """

    def __init__(self, moments: Moments) -> None:
        self.boot = {f"e{i:03d}": f"e{i:03d}-boot-1" for i in range(8)}
        self.addresses = {f"e{i:03d}": f"127.0.9.{i + 1}" for i in range(8)}
        self.behind: dict[str, str] = {}
        self.tuned: set[str] = set()
        self.live_back: set[str] = set()
        self.not_ready: set[str] = set()
        self.epochs: dict[str, int] = {}
        self.errors: dict[tuple[str, str], str] = {}
        self.reasons: dict[tuple[str, str], str] = {}
        self.unreachable: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.health_ms = 1.0
        self.health: dict[str, str] = {}
        self.logs: dict[str, str] = {}
        self.gauges_left_out: set[str] = set()
        self.unsupported: dict[str, str] = {}
        self.unwritable: dict[str, list[str]] = {}
        self.ahead = dict.fromkeys(self.boot, 0.0)
        self.drift: dict[str, list[dict[str, Any]]] = {}
        self.values: dict[str, str] = {}
        self.way_back: dict[str, dict[str, Any]] = {}
        self.found: dict[str, list[dict[str, Any]]] = {}
        self.unread: dict[str, list[str]] = {}
        self.without_textfile: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.left: list[str] = []
        self.handed_over: set[str] = set()
        self.lost: set[str] = set()
        self.carries: Callable[[str], bool] = lambda name: False
        self.sessions: Callable[[str], int] = lambda name: 0
        self.disturbed: list[tuple[str, str]] = []
        self.standing = tuning()
        self.kexec_loaded = False
        self.systems: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        self.losing: dict[str, str] = {}
        self.connected: list[str] = []
        self.timeouts: dict[str, float] = {}
        self.machine: dict[str, dict[str, str]] = {}
        self.told_by_dmi: Callable[[str], dict[str, str]] = lambda name: {"uuid": "", "serial": ""}
        self.boots: Callable[[str], None] = lambda name: None
        self.lies: Callable[[str, Any], Any] = lambda name, reply: reply
        self.heeds = dict.fromkeys(self.boot, {"reboot", "GracefulRestart", "ForceRestart"})
        self.reset_blindly: list[tuple[str, str]] = []
        self._going_down: set[str] = set()
        self._moments = moments

    def ask(
        self, hosts: Any, verb: str, request: Any, timeout: float = 0, patience: float = 0
    ) -> dict[str, HostResult]:
        parts = self.ask_in_parts(hosts, verb, request, timeout, patience)
        return {host.name: result for part in parts for host, result in part}

    def ask_in_parts(
        self,
        hosts: Any,
        verb: str,
        request: Any,
        timeout: float = 0,
        patience: float = 0,
        ahead: bool = False,
    ) -> Iterator[list[tuple[Any, HostResult]]]:
        self.timeouts[verb] = timeout
        for host in hosts:
            answer = self._one(self.behind.get(host.name, host.name), verb, request(host))
            yield [(host, replace(answer, host=host.name))]

    def lost_connections(self, hosts: Any, ports: Any) -> dict[str, str]:
        """What a test says that some lose."""
        self.connected += [host.name for host in hosts]
        return {host.name: self.losing[host.name] for host in hosts if host.name in self.losing}

    def changing(self) -> list[str]:
        """Verbs so far that can change a host."""
        asked = [(verb, own) for _, verb, own in self.asked if verb in CHANGING_VERBS]
        return [verb for verb, own in asked if not own.get("dry_run")]

    def told(self, verb: str) -> list[str]:
        """Who was asked for ``verb``, in order."""
        return [name for name, asked, _ in self.asked if asked == verb]

    def reboot(self) -> None:
        """Whoever was told to reboot does so."""
        for name in self._going_down:
            self.boot[name] += "+"
            self.boots(name)
        self._going_down.clear()

    def restart(self, name: str, kind: str) -> bool:
        """Its BMC was asked for a reset, and whether it heeds it; one that does not answer may be
        in POST, unless it is off."""
        if kind == "On":
            self.unreachable.discard(name)
        elif name in self.unreachable:
            self.reset_blindly.append((name, kind))
        heeds = kind in ("On", *self.heeds[name])
        if heeds and kind == "GracefulShutdown":
            self.unreachable.add(name)
        elif heeds:
            self._going_down.add(name)
        return heeds

    def reboots(self, name: str) -> int:
        """How often it has rebooted."""
        return self.boot[name].count("+")

    def _one(self, name: str, verb: str, request: dict[str, Any]) -> HostResult:
        self.asked.append((name, verb, request))
        if name in self.unreachable:
            return HostResult(name, error="timed out", reason="unreachable")
        if (name, verb) in self.errors:
            reason = self.reasons.get((name, verb), "failed")
            return HostResult(name, error=self.errors[name, verb], reason=reason)
        if verb in ("uninstall", "hand_over") and name in self.held:
            return HostResult(name, error=self.held[name], reason="refused")
        if verb in ("uninstall", "hand_over") and request["dry_run"]:
            own = getattr(self, "_" + verb)(name, request)
            return self._answered(name, verb, request, own)
        if request.get("drained") and name not in self.not_ready:
            return HostResult(name, error="this machine was not drained", reason="refused")
        if (request.get("address") or self.addresses[name]) != self.addresses[name]:
            text = f"this machine has {self.addresses[name]}, and not {request['address']}"
            return HostResult(name, error=text, reason=ANOTHER_MACHINE)
        if request.get("epoch", self.epochs.get(name, 0)) < self.epochs.get(name, 0):
            return HostResult(name, error="epoch: is older than one seen", reason="refused")
        self.epochs[name] = request.get("epoch", self.epochs.get(name, 0))
        return self._answered(name, verb, request, self._act(name, verb, request))

    def _answered(
        self, name: str, verb: str, request: dict[str, Any], own: dict[str, Any]
    ) -> HostResult:
        told = {**own, "boot_id": self.boot[name]}
        reply = {"edgetune": 1, "verb": verb, "ok": True, "result": {**RESULTS[verb], **told}}
        try:
            return read_answer(name, verb, request, json.dumps(self.lies(name, reply)).encode())
        except HostError as error:
            return HostResult(name, error=f"answer to {verb}: {error}", reason="garbage")

    def _act(self, name: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        act = getattr(self, "_" + verb)
        if verb not in CHANGING_VERBS:
            return dict(act(name, request))
        if verb in _DISTURBING_VERBS and "live" not in request and self.carries(name):
            self.disturbed.append((name, verb))
        with self._moments.around(f"{name} {verb}"):
            return dict(act(name, request))

    def _facts(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        stands = {"state": "confirmed", "digest": self.standing.digest, "rollout": "r1"}
        tunings = {self.standing.name: stands} if name in self.tuned else {}
        epoch = self.epochs.get(name, 0)
        state = {"epoch": epoch, "tunings": tunings, "ready": name not in self.not_ready}
        machine = self.machine.get(name) or self.told_by_dmi(name)
        own = [{"interface": "eth0", "address": self.addresses[name]}]
        known = {"agent_state": state, "kexec_loaded": self.kexec_loaded, "machine": machine}
        known["unwritable"] = self.unwritable.get(name, [])
        known["system"] = self.systems.get(name, "linux")
        if name in self.kernels:
            known["kernel"] = self.kernels[name]
        return {**known, "addresses": own, "time": clock.wall() + self.ahead[name]}

    def _ready(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        ready = request["ready"]
        changed = (name in self.not_ready) == ready
        (self.not_ready.discard if ready else self.not_ready.add)(name)
        return {"changed": changed, "ready": ready, "sessions": self.sessions(name)}

    def _sessions(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return {"sessions": self.sessions(name)}

    def _textfile(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return {"missing": self.without_textfile.get(name, "")}

    def _uninstall(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        if not request["dry_run"]:
            self.left.append(name)
            self.epochs.pop(name, None)
        return {"tunings": [self.standing.name] if name in self.tuned else []}

    def _hand_over(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """What was handed over once is there still, unless it is ``lost``."""
        wrong = [] if name in self.handed_over and name not in self.lost else ["it differs"]
        if name not in self.tuned:
            return {"files": {}, "found": False, "wrong": wrong}
        if not request["dry_run"]:
            self.tuned.discard(name)
            self.handed_over.add(name)
        return {"found": True, "wrong": []}

    def _apply(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        changed = name not in self.tuned
        self.tuned.add(name)
        return {"changed": changed, "diff": []}

    def _restore(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        changed = name in self.tuned
        if "live" in request:
            self.live_back.add(name)
            return {"changed": changed, "diff": [], "nothing_to_restore": False}
        self.tuned.discard(name)
        return {"changed": changed, "diff": [], "nothing_to_restore": not changed}

    def _confirm(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        rows = [{**ROW, "id": own["id"], "ok": True} for own in request["settings"]]
        return {"confirmed": name in self.tuned, "settings": rows, "state": "none"}

    def _verify(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        rows = [{**ROW, "id": own["id"], "ok": True} for own in request["settings"]]
        return {"settings": rows, "way_back": self.way_back.get(name, {})}

    def _plan(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        (row,) = encoded(observed(name))
        now = row["wanted"] if name in self.tuned else self.values.get(name, row["runtime"])
        status = "noop" if name in self.tuned else "change"
        if name in self.unsupported:
            row, status = {**row, "reason": self.unsupported[name]}, "unsupported"
        return {"settings": [{**row, "status": status, "runtime": now, "persistent": now}]}

    def _reboot(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        meant = request["boot_id"] == self.boot[name]
        if meant and "reboot" in self.heeds[name]:
            self._going_down.add(name)
        return {"rebooting": meant}

    def _diagnose(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        tunings = {"accept_queue": "confirmed"} if name in self.tuned else {}
        found, unread = self.found.get(name, []), self.unread.get(name, [])
        system = self.systems.get(name, "linux")
        return {"system": system, "findings": found, "unread": unread, "tunings": tunings}

    def _sample(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        seen = "answers 503 Service Unavailable" if name in self.not_ready else ""
        seen = self.health.get(name, seen)
        failed = float(bool(seen))
        gauges = {"health_failed": failed, "health_p50_ms": self.health_ms}
        gauges = {own: gauges[own] for own in gauges.keys() - self.gauges_left_out}
        drift = self.drift.get(name, [])
        log = self.logs.get(name, "") if "access_log" in request else ""
        requests = {"request_ms": 0} if "access_log" in request and not log else {}
        counted = {"uptime": 1.0, "counters": {"listen_drops": 0, **requests}}
        return {**counted, "gauges": gauges, "drift": drift, "health": seen, "log": log}


class WatchedStore:
    """A store whose writes are moments too."""

    def __init__(self, store: Store, moments: Moments) -> None:
        self._store, self._moments = store, moments

    def get(self, key: str) -> str | None:
        return self._store.get(key)

    def list(self, prefix: str) -> Mapping[str, str]:
        return self._store.list(prefix)

    def secret(self, key: str) -> str | None:
        return self._store.secret(key)

    def refuses_changes(self) -> str:
        return self._store.refuses_changes()

    def put(self, key: str, value: str) -> None:
        with self._moments.around(f"put {key}"):
            self._store.put(key, value)

    def delete(self, key: str) -> None:
        with self._moments.around(f"delete {key}"):
            self._store.delete(key)


class EmptyWorld:
    """A context whose load balancer and hosts are in memory, and their BMCs, if they have any."""

    def __init__(self, folder: Path, bmcs: bool = False, **config: Any) -> None:
        state = f"sqlite:///{folder}/state.sqlite"
        inventory = write_yaml(folder / "inventory.yaml", inventory_document(bmcs=bmcs))
        for file, text in {"key": KEY, "known_hosts": "of nobody"}.items():
            (folder / file).write_text(text, encoding="utf-8")
            (folder / file).chmod(0o600)
        self.config = {
            "inventory": str(inventory),
            "ssh_key_file": f"{folder}/key",
            "ssh_known_hosts": f"{folder}/known_hosts",
            "records": state,
            "coordination": state,
            "drain_deadline": 1,
            "reboot_deadline": 1,
            "health_deadline": 1,
            **config,
        }
        self.moments = Moments()
        self.hosts = Hosts(self.moments)
        self.balancer = Balancer(self.moments, self.hosts.not_ready)
        self.hosts.carries = self.balancer.carries
        self.hosts.sessions = self.balancer.look
        self.bmcs = Bmcs(self.moments.around)
        self.hosts.boots, self.bmcs.restart = self.bmcs.boot, self.hosts.restart
        self.context = Context(self.config)
        self.context.store = WatchedStore(self.context.store, self.moments)
        self.context.fleet = self.hosts  # type: ignore[assignment]
        self.context.bmcs = self.bmcs  # type: ignore[assignment]
        self.context.load_balancer = lambda pop: self.balancer  # type: ignore[method-assign]
        self.rollout, self.epoch = "", 0

    def change_inventory(self, document: Any) -> None:
        """Have another file in the place of the inventory."""
        write_yaml(self.context.config.inventory, document)
        self.context.__dict__.pop("inventory", None)

    def begin(self, folder: Path, **planned: Any) -> None:
        """Plan a rollout and claim the PoP for it."""
        self.plan = self._planned(folder, **planned)
        save_plan(self.context, self.plan)
        self.begin_planned(self.plan.digest)

    def begin_planned(self, digest: str) -> None:
        """Claim the PoP for a plan that is kept."""
        self.plan = load_plan(self.context, digest)
        begun = claim_pop(self.context, plan=digest, owner="run-1", requested_by="ana")
        self.rollout, self.epoch = begun["rollout"], begun["epoch"]

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = plan(folder, **planned)
        if disruption:
            batches = [batch for batch in made.batches if batch.batch_type != "sham"]
            made = replace(made, disruption=disruption, batches=batches)
            made = replace(made, digest=made.document()["digest"])
        return made

    @property
    def head(self) -> Head:
        """The head as the store has it."""
        return read_rollout(self.context, self.rollout).head

    def mark(self, state: str, **more: Any) -> dict[str, Any]:
        """Enter a state; what is to be promoted is proven to help."""
        if state == "promoting":
            prove(self.context, self.rollout)
        if state == "rolling_back":
            marked = begin_rollback(self.context, self.rollout, self.epoch, **more)
        else:
            marked = set_rollout_state(self.context, self.rollout, self.epoch, state, **more)
        self.epoch = marked["epoch"]
        return marked

    def take_over(self, **more: Any) -> dict[str, Any]:
        """Claim the rollout under a new epoch."""
        taken = take_over_rollout(self.context, self.rollout, **more)
        self.epoch = taken.get("epoch", self.epoch)
        return taken

    def step(self, function: Any, batch: int, **more: Any) -> dict[str, Any]:
        step = step_named(function)
        result: dict[str, Any] = step(self.context, self.rollout, self.epoch, batch, **more)
        return result

    def run(self, name: str, *given: Any, **more: Any) -> dict[str, Any]:
        """The step of an action; of this rollout and epoch, where nothing else is said."""
        step = step_named(name)
        if not given:
            takes, own = signature(step).parameters, {"rollout": self.rollout}
            if "epoch" in takes and takes["epoch"].default is Parameter.empty:
                own["epoch"] = self.epoch
            more = {**{key: own[key] for key in own if key in takes}, **more}
        return shown(step(self.context, *given, **more))

    def status(self, **given: Any) -> str:
        """What people read of rollouts: of all, unless one is named."""
        return str(step_named("rollout_status")(self.context, **given)["text"])

    def set_head(self, **fields: Any) -> None:
        """Have other values in the record."""
        opened = as_owner(self.context, self.rollout)
        for name, value in fields.items():
            setattr(opened.head, name, value)
        opened.save()

    def batch(self, number: int) -> Batch:
        return read_rollout(self.context, self.rollout).batch(number)

    def at(self, batch: int) -> dict[str, str]:
        return {name: host.step for name, host in self.batch(batch).hosts.items()}

    def age(self, batch: int, seconds: float = 60) -> None:
        """The last step of each host of a batch lies that much longer back."""
        opened = as_owner(self.context, self.rollout)
        work = opened.batch(batch)
        for host in work.hosts.values():
            host.at -= seconds
        opened.save_batch(work)

    def way(self, batch: int) -> list[Any]:
        """The steps of a batch, as the workflow of the batch takes them."""
        opened = as_owner(self.context, self.rollout)
        way = _WAYS[opened.batch(batch).batch_type]
        return [step for step in way if step is not set_bios or opened.sets_bios]

    def roll(self, batch: int, until: Any = None) -> None:
        """One batch the whole way, or up to the step ``until`` and without it."""
        end = step_named(until)
        for step in takewhile(lambda step: step is not end, self.way(batch)):
            self.step(step, batch)
            if step is reboot_hosts:
                self.hosts.reboot()

    def roll_all(self, marked: Mapping[str, Any]) -> None:
        """Every batch of a state that was entered, each as the workflow of the batch does it."""
        for batch in range(marked["first_batch"], marked["end_batch"]):
            remaining = 1
            while remaining:
                for step in self.way(batch):
                    self._until_nobody_waits(step, batch)
                health = self.step(check_health, batch)
                assert health["failed"] == []
                remaining = health["remaining"]

    def roll_back(self, **more: Any) -> dict[str, Any]:
        """The whole way back, as ``roll_back_pop`` does it."""
        self.roll_all(self.mark("rolling_back", **more))
        return self.mark("rolled_back")

    def _until_nobody_waits(self, step: Any, batch: int) -> None:
        for _ in range(9):
            result = self.step(step, batch)
            self.hosts.reboot()
            assert result.get("failed", []) == [], result
            begun = step is begin_drain and result["next"] == "check_drained"
            if begun or not result.get("waiting"):
                return
            if step is check_rebooted:
                # Nobody is on the way any more: whoever is awaited was never told.
                self.age(batch)
        raise AssertionError(f"batch {batch} waits for ever: {result['message']}")


class World(EmptyWorld):
    """A context with one rollout on it, claimed and nothing else yet; ``site`` configures it."""

    def __init__(self, folder: Path, site: dict[str, Any] | None = None, **planned: Any) -> None:
        super().__init__(folder, **(site or {}))
        self.begin(folder, **planned)


class BiosWorld(EmptyWorld):
    """A context with BMCs; `begin` plans with what hosts and BMCs answer.

    Beside the catalogue there is ``snoop_and_queue``, which sets the BIOS and a sysctl.
    """

    def __init__(self, folder: Path, **config: Any) -> None:
        folder.mkdir(exist_ok=True)
        own = folder / "tunings"
        own.mkdir(exist_ok=True)
        write_yaml(own / "snoop_and_queue.yaml", _snoop_and_queue())
        super().__init__(folder, bmcs=True, **{"tunings": [str(own)], **config})
        self.hosts.told_by_dmi = lambda name: {"uuid": self.bmcs.system[name], "serial": ""}

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        options = {"pop": "lab1", "tuning": "home_snoop", "seed": 7, **planned}
        made = plan_rollout(self.context, **options)
        self.hosts.standing = self.context.tuning(options["tuning"])
        return load_plan(self.context, made["plan"])

    def enter(self, state: str = "changing", **planned: Any) -> None:
        """Begin a rollout and go on to a state, as far as nothing is to be done for it."""
        self.begin(Path(), **planned)
        as_far_as(state, self)

    def complete(self, **planned: Any) -> str:
        """A whole rollout, promoted; its id."""
        self.enter("changing", **planned)
        for state in ("changing", "soaking", "promoting"):
            self.roll_all(self.mark(state))
        self.mark("complete")
        return self.rollout


def _snoop_and_queue() -> dict[str, Any]:
    why = {"why": "Both are wanted.", "source": "a test"}
    snoop = {"kind": "bios.snoop_mode", "value": "home", **why}
    queue = {"kind": "sysctl", "key": "net.core.somaxconn", "value": "4096", **why}
    return {
        "name": "snoop_and_queue",
        "version": "1.0.0",
        "summary": "The BIOS and the kernel at once.",
        "intent": {"improve": "packet_drops"},
        "guards": [{"metric": "health_failed", "margin": 0.5}],
        "settings": [snoop, queue],
    }


def prove(context: Context, rollout: str) -> None:
    """Give a rollout a verdict that promotes it, unless it has one."""
    opened = as_owner(context, rollout)
    if not opened.head.verdict:
        opened.head.verdict = concluded("promote", "improved")
        opened.save()


Made = TypeVar("Made", bound=EmptyWorld)


def as_far_as(state: str, made: Made) -> Made:
    """The world with its rollout in a state, as far as nothing is to be done for it."""
    for each in ("baseline", "changing", "soaking", "promoting"):
        made.mark(each)
        if each == state:
            break
    return made


def changing(folder: Path, **planned: Any) -> World:
    """A world whose rollout is about to change its first batch."""
    folder.mkdir(exist_ok=True)
    return as_far_as("changing", World(folder, **planned))


def ended(folder: Path) -> World:
    """A rollout that is taken back with a host in quarantine, whose PoP is free."""
    world = changing(folder)
    world.mark("rolling_back")
    world.mark("rolled_back")
    opened = as_owner(world.context, world.rollout)
    opened.head.quarantined["e000"] = Quarantine("gone")
    opened.save()
    held = world.context.claims.holder("lab1")
    if held:
        world.context.claims.release("lab1", held)
    return world


def dies(world: EmptyWorld, moment: int, work: Callable[[Any], None]) -> bool:
    """Whether the work died at its n-th moment; without that it ended before."""
    world.moments.die_at = len(world.moments.seen) + moment
    try:
        work(world)
    except Died:
        world.moments.die_at = -1
        # What was told to reboot does so, whoever told it.
        world.hosts.reboot()
        return True
    return False


def at_every_moment(
    make: Callable[[str], Any],
    work: Callable[[Any], None],
    afterwards: Callable[[Any], None] | None = None,
) -> Iterator[tuple[str, Any]]:
    """A world for each moment at which the work can die.

    Somebody else carries it on, or does something else ``afterwards``.
    """
    # After an effect or before the next one is the same to the world.
    for moment in count(1, 2):
        world = make(str(moment))
        if not dies(world, moment, work):
            assert moment > 40
            return
        died = world.moments.seen[-1]
        if world.take_over(unfinished_only=True)["claimed"]:
            (afterwards or work)(world)
        yield f"{moment}: {died}", world
