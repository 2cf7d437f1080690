# SPDX-License-Identifier: Apache-2.0
"""Ask every host of a PoP what a tuning would change there, and make the plan of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.errors import InputError, RefusedError
from edgetune.inventory import Host, Pop
from edgetune.plan import Options, groups, make_plan
from edgetune.rendering import misfits, render
from edgetune.report.text import plan_text
from edgetune.rollout.record import all_heads, load_plan, save_plan
from edgetune.rollout.site import Site
from edgetune.tuning import Tuning

_FEW = 3


def plan_rollout(
    site: Site,
    pop: str = "",
    tuning: str = "",
    plan: str = "",
    exclude: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """What ``tuning`` would do to ``pop``; touches nothing, keeps the plan under its digest.

    With ``plan`` (a digest that somebody approved) the same plan is made again from the hosts
    as they are now; RefusedError says what no longer fits.
    """
    if plan:
        made = _make_again(site, plan, pop, tuning)
    else:
        seed = options.pop("seed", 0) or secrets.randbits(31)
        chosen = Options(exclude=tuple(exclude), seed=seed, **options).checked()
        made = _make(site, pop, tuning, chosen)
    save_plan(site, made)
    split = groups(made)
    counts = f"{len(split['test'])} test and {len(split['control'])} control hosts"
    return {
        "plan": made["digest"],
        "pop": made["pop"],
        "tuning": made["tuning"]["name"],
        "disruption": made["disruption"],
        "test": split["test"],
        "control": split["control"],
        "batches": len(made["batches"]) + len(made["promote_batches"]),
        "seconds": made["seconds"],
        "interval": made["options"]["interval"],
        "message": f"{made['digest']}: {counts}, {made['disruption']}",
        "text": plan_text(made),
    }


def _make(site: Site, pop_name: str, tuning_name: str, options: Options) -> dict[str, Any]:
    if not pop_name or not tuning_name:
        raise InputError("parameter", "tuning" if pop_name else "pop", "is missing")
    pop = site.inventory.pop(pop_name)
    tuning = site.tuning(tuning_name)
    for name in options.exclude:
        pop.host(name)
    hosts = [host for host in pop.hosts if host.name not in options.exclude]
    _refuse_quarantined(site, pop, hosts)
    _refuse_unknown_servers(site, pop, hosts)
    facts = _ask(site, hosts, "facts", {})
    _refuse_not_ready(facts)
    _refuse_other_version(tuning, facts)
    _refuse_misfits(tuning, facts)
    rendered = _render(tuning, facts)
    observed = _ask(
        site,
        hosts,
        "plan",
        {
            host.name: {
                "tuning": tuning.name,
                "digest": tuning.digest,
                "settings": rendered[host.name],
            }
            for host in hosts
        },
    )
    seen = {name: answer["settings"] for name, answer in observed.items()}
    return make_plan(pop, tuning, rendered, seen, options)


def _make_again(site: Site, digest: str, pop: str, tuning: str) -> dict[str, Any]:
    old = load_plan(site, digest)
    for field, given, planned in (
        ("pop", pop, old["pop"]),
        ("tuning", tuning, old["tuning"]["name"]),
    ):
        if given and given != planned:
            raise InputError("parameter", field, f"plan {digest} is for {planned}, not {given}")
    kept = {**old["options"], "exclude": tuple(old["options"]["exclude"])}
    new = _make(site, old["pop"], old["tuning"]["name"], Options(**kept).checked())
    if new["digest"] != digest:
        changed = [key for key in new if key != "digest" and new[key] != old.get(key)]
        raise RefusedError(
            f"plan {digest} no longer fits: {', '.join(changed)} changed since it was made"
        )
    return new


def _refuse_unknown_servers(site: Site, pop: Pop, hosts: Sequence[Host]) -> None:
    servers = site.load_balancer(pop).servers()
    for host in hosts:
        if host.server not in servers:
            field = f"pops.{pop.name}.hosts.{host.name}.server"
            raise InputError("inventory", field, f"the load balancer has no server {host.server!r}")


def _refuse_quarantined(site: Site, pop: Pop, hosts: Sequence[Host]) -> None:
    names = {host.name for host in hosts}
    for head in all_heads(site):
        stuck = sorted(names & head.quarantined.keys()) if head.pop == pop.name else []
        if stuck:
            raise RefusedError(
                f"{', '.join(stuck)}: quarantined by rollout {head.id}; release_host brings a "
                "mended host back, adopt_host a replaced one, exclude= leaves it out"
            )


def _refuse_not_ready(facts: Mapping[str, Mapping[str, Any]]) -> None:
    waiting = [n for n, known in facts.items() if known["agent_state"].get("ready") is False]
    if waiting:
        raise RefusedError(
            f"{', '.join(sorted(waiting))}: not ready, drained by a rollout that has not verified "
            "it; recover_pop carries that one on (exclude= leaves hosts out)"
        )


def _ask(
    site: Site, hosts: Sequence[Host], verb: str, requests: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Every host's answer; a plan needs all of them, so one failure refuses it."""
    answers = site.fleet.ask(hosts, verb, lambda host: requests.get(host.name, {}))
    failed = [f"{answer.host}: {answer.error}" for answer in answers.values() if answer.failed]
    if failed:
        raise RefusedError(_few(failed))
    return {name: answer.data for name, answer in answers.items()}


def _refuse_other_version(tuning: Tuning, facts: Mapping[str, Mapping[str, Any]]) -> None:
    for name, known in facts.items():
        stands = known.get("agent_state", {}).get("tunings", {}).get(tuning.name)
        if stands and stands.get("digest") != tuning.digest:
            raise RefusedError(
                f"{name}: another version of {tuning.name} stands there, of rollout "
                f"{stands.get('rollout')}; roll that back first"
            )


def _refuse_misfits(tuning: Tuning, facts: Mapping[str, Mapping[str, Any]]) -> None:
    reasons = {name: misfits(tuning, known) for name, known in facts.items()}
    found = [f"{name}: {'; '.join(why)}" for name, why in sorted(reasons.items()) if why]
    if found:
        raise RefusedError(f"{tuning.name} is not for {_few(found)}")


def _few(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _FEW} more" if len(problems) > _FEW else ""
    return "; ".join(problems[:_FEW]) + more + " (exclude= leaves hosts out)"


def _render(tuning: Tuning, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: render(tuning, known) for name, known in facts.items()}
