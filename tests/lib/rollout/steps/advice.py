# SPDX-License-Identifier: Apache-2.0
"""What a person is told of a PoP in one state by everything that gives advice, and whether that
advice is of the state's cause: the table is advice.yaml."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from edgetune.base.documents.head import CARRIED_ON_BY_A_WORKFLOW, ENDED, Head
from edgetune.base.errors import EdgetuneError
from edgetune.fleet.campaign.record import put_record
from edgetune.report.answers import text_of
from edgetune.report.headline import next_steps
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.owner import is_orphaned
from edgetune.rollout.record.heads import all_heads
from edgetune.rollout.record.rollout import Record, read_rollout, under_way
from edgetune.rollout.status.congestion import claim_of
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.support.exported import campaign, tune
from tests.support.scenarios import Scenario
from tests.support.world import step_named

_COMMAND = re.compile(r"st2 run edgetune\.(\w+)((?: \w+=(?:'[^']*'|[^\s,;)']*[^\s,;).']))*)")
_FOR_HOSTS = ("hosts", "load balancer", "machines", "health", "clocks", "settings")
_BY_HAND = ("bring it back", "mend", "leave it out")
"""What nobody is to do by hand with a host that a rollout has in the middle of a change."""

_FOR_ORPHANS = ("recover_rollout", "carry on:", "NO OWNER", "WITHOUT AN OWNER")
_FOR_LIVING = "wait for its end"


class Advice(Scenario):
    """Everything that gives advice on lab1, at one moment."""

    def advice(self, expected: dict[str, Any]) -> None:
        """What is told is as expected, and contradicts neither the cause nor itself."""
        told = self._told()
        wrong = [*self._not_first(told), *self._by_hand(), *self._of_owners(told)]
        wrong += [*self._refused_commands(told)]
        assert wrong == [], f"{self.where}:\n" + "\n".join(wrong)
        for name, text in expected.items():
            self._compare(name, told[name], text)

    def rounds(self, _: object) -> None:
        """A round of the PoP's congestion control is under way."""
        tune(self.world)
        name = claim_of("lab1")
        self.world.context.claims.take(name, name, 3600)

    def campaign(self, _: object) -> None:
        """One is under way, and waits."""
        put_record(self.world.context, campaign())

    def _told(self) -> dict[str, str]:
        context, heads = self.world.context, self._heads
        try:
            made = plan_rollout(context, "lab1", "accept_queue", seed=7)
            plan = text_of(made["text"]).partition("  preflight\n")[2].strip()
        except EdgetuneError as error:
            plan = f"refused: {error}"
        self._checks = self._run("doctor_pop", pop="lab1")["checks"]
        pages = [f"{own.text} {own.command}" for head in heads for own in next_steps(head)]
        return {
            "plan": plan,
            "begin": self._begun(),
            "claim": "; ".join(
                f"{row['what']} -> {row['advice']}"
                for check in self._checks
                if check["check"] == "claim"
                for row in check["findings"]
            ),
            "doctor": "\n".join(
                f"{check['check']}: {','.join(row['hosts'])}: {row['what']} -> {row['advice']}"
                for check in self._checks
                for row in check["findings"]
            ),
            "status": rollout_status(context)["text"],
            "of_pop": rollout_status(context, pop="lab1")["text"],
            "page": "\n".join(pages),
        }

    @property
    def _heads(self) -> list[Head]:
        return [head for head in all_heads(self.world.context) if head.pop == "lab1"]

    @property
    def _unfinished(self) -> list[Head]:
        return [head for head in self._heads if head.state not in ENDED]

    @property
    def _mid_change(self) -> set[str]:
        context = self.world.context
        steps = [under_way(Record(context, head).batches()) for head in self._unfinished]
        held = {host for head in self._heads for host in head.quarantined}
        return held | {name for own in steps for name, _ in own}

    def _not_first(self, told: dict[str, str]) -> Iterator[str]:
        """Whoever holds the PoP is named first, with all that is known."""
        holder = self.world.context.claims.holder("lab1")
        held = [head.id for head in self._unfinished] or ([holder.rollout] if holder else [])
        for name in held:
            first = told["plan"].removeprefix("refused: ").split(" -> ")[0].splitlines()[:1]
            failed = [check for check in self._checks if check["findings"]]
            known = [head for head in self._unfinished if head.id == name]
            words = [name, *(w for head in known for w in (f"{head.tuning}, by {head.by}",))]
            for where, text in (
                ("plan", "".join(first)),
                ("begin", told["begin"].split(" -> ")[0]),
                ("doctor", f"{failed[0]['check']}: {failed[0]['findings']}" if failed else ""),
            ):
                # Nobody begins anything while everything is stopped, whosever the PoP is.
                told_so = where == "begin" and "everything is stopped" in text
                missing = [word for word in words if word not in text and not told_so]
                if missing:
                    yield f"{where} does not say first {missing}, but: {text[:160]}"
            if failed and failed[0]["check"] != "claim":
                yield f"doctor says {failed[0]['check']} first"

    def _by_hand(self) -> Iterator[str]:
        """No host that a rollout has in hand is anybody else's to mend."""
        for check in self._checks:
            for row in check["findings"] if check["check"] in _FOR_HOSTS else ():
                own = self._mid_change & {*row["hosts"]}
                bad = [word for word in _BY_HAND if word in row["advice"]]
                if own and bad and not row["advice"].startswith("once mended: st2 run"):
                    what = f"{row['what']} -> {row['advice']}"
                    yield f"doctor, {check['check']}: {','.join(sorted(own))}: {what}"

    def _of_owners(self, told: dict[str, str]) -> Iterator[str]:
        context = self.world.context
        for head in self._unfinished:
            orphaned = is_orphaned(context, head)
            words = [_FOR_LIVING] if orphaned else [*_FOR_ORPHANS]
            if not orphaned and head.state == "rolling_back":
                words += ["take it back: ", "roll back: ", "To take it back:"]
            for where, text in told.items():
                for word in words:
                    if word in text:
                        state = "nobody carries on" if orphaned else "somebody carries on"
                        yield f"{where} says {word!r} of one that {state} ({head.state})"

    def _refused_commands(self, told: dict[str, str]) -> Iterator[str]:
        """A command that is shown is taken, or refused for the very cause that is told first."""
        seen = set()
        for where, text in told.items():
            for name, words in _COMMAND.findall(text):
                for given in self._meant_by(words):
                    if (name, str(given)) in seen:
                        continue
                    seen.add((name, str(given)))
                    why = self._refusal(name, given)
                    others = [o.id for o in self._unfinished if o.id != given.get("rollout")]
                    if why and not any(name in why for name in others):
                        yield f"{where} says {name}{words}, which is refused: {why}"

    def _meant_by(self, words: str) -> list[dict[str, Any]]:
        pairs = [word.partition("=") for word in shlex.split(words)]
        given = {name: value for name, _, value in pairs}
        if given.get("host") == "HOST":
            stuck = [host for head in self._heads for host in head.quarantined]
            return [{**given, "host": host} for host in stuck]
        return [] if {"TUNING", "POP"} & {*given.values()} else [given]

    def _refusal(self, name: str, given: dict[str, Any]) -> str:
        """Why StackStorm's action would be refused now; all is as before then."""
        with self._as_before():
            try:
                if name not in ("resume_all", "rollout_status") and stopped_by(self.world.context):
                    self._run("resume_all")
                return self._first_step(name, given) or ""
            except EdgetuneError as error:
                return str(error)

    def _begun(self) -> str:
        """What somebody is told who begins the plan that there is."""
        plans = sorted(self.world.context.store.list("edgetune.plan."))
        with self._as_before():
            try:
                self._run("claim_pop", plan=plans[-1].partition("plan.")[2], requested_by="bo")
            except EdgetuneError as error:
                return f"refused: {error}"
        return "begun"

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """What is done meanwhile is undone."""
        database = Path(self.world.config["records"].partition("///")[2])
        kept, asked = database.read_bytes(), list(self.world.hosts.asked)
        try:
            yield
        finally:
            database.write_bytes(kept)
            self.world.hosts.asked = asked

    def _first_step(self, name: str, given: dict[str, Any]) -> str | None:
        if name in ("rollout_pop", "recover_rollout"):
            taken = self._run("take_over_rollout", rollout=given["rollout"], unfinished_only=True)
            return None if taken["claimed"] else taken["message"]
        if name == "roll_back_pop":
            back = self._run("take_over_for_rollback", **given)
            return None if back["entered"] else back["message"]
        if name == "release_host":
            host = given["host"]
            ids = rollout_status(self.world.context, host=host, state="rolled_back")["ids"]
            if not ids:
                return "no rollout that is rolled back holds this host in quarantine"
            return self._first_step("roll_back_pop", {"rollout": ids[-1], "hosts": [host]})
        if name == "adopt_host":
            state = read_rollout(self.world.context, given["rollout"]).head.state
            return f"it is {state}" if state in CARRIED_ON_BY_A_WORKFLOW else None
        if name == "advance_rollout":
            self._run("compare_groups", rollout=given["rollout"])
        elif name == "retire_tuning":
            own = {"pop": given["pop"], "tuning": given["tuning"], "dry_run": True}
            self._run("hand_over_tuning", **own)
        elif name in ("congestion_report", "roll_back_congestion", "resume_congestion"):
            place = f"edgetune.wings.congestion.rounds.steps.{name}"
            getattr(import_module(place), name)(self.world.context, **given)
        elif name not in ("plan_rollout", "approve"):
            self._run(name, **given)
        return None

    def _run(self, name: str, **given: Any) -> Any:
        return step_named(name)(self.world.context, **given)
