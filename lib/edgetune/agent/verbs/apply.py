# SPDX-License-Identifier: Apache-2.0
"""``apply``: change the host to what the plan showed."""

from typing import Dict, List, Sequence

from edgetune.agent.change import carry_out, record
from edgetune.agent.drift import drifted
from edgetune.agent.host import Host
from edgetune.agent.journal import UNSETTLED, Head, Journal, Journals, Reading
from edgetune.agent.kinds import probe_hook
from edgetune.agent.observe import (
    Difference,
    Row,
    diff_of,
    observe_all,
    read_settings,
    refuse_unwritable,
)
from edgetune.agent.protocol import (
    DIGEST,
    TUNING,
    AgentError,
    Failed,
    Json,
    Refused,
    Request,
    TakenBack,
    Unsupported,
    complaint,
)
from edgetune.agent.reachable import answering, changes_network, refuse_lost
from edgetune.agent.undo import refuse_below, take_back, what_differs
from edgetune.agent.verbs.verify import verify_settings
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.values import alike, shown

Expected = Dict[str, Dict[str, object]]
"""By the id of a setting, what the plan saw: its fields are those of ``Reading``."""


def run(host: Host, request: Request) -> Json:
    """Change the host to what the plan showed, wholly or not at all."""
    epoch = request.epoch()
    drained = request.flag("drained", default=False)
    head = Head(
        rollout=request.text("rollout", LINE),
        tuning=request.text("tuning", TUNING),
        digest=request.text("digest", DIGEST),
        confirm_within=request.seconds("confirm_within"),
        grace_boots=request.whole("grace_boots", 0, 1, default=0),
    )
    settings = read_settings(request)
    expect = _read_expect(request, settings)
    request.done()
    with host.lock():
        host.refuse_in_service(drained)
        try:
            host.fence(epoch)
        except OSError as error:
            raise Refused(f"cannot be written down: {complaint(error)}") from None
        return _apply(host, head, settings, expect)


def _apply(host: Host, head: Head, settings: List[Setting], expect: Expected) -> Json:
    standing = Journals(host).load(head.tuning)
    if standing is not None:
        if standing.digest != head.digest:
            raise Refused(f"{standing.tuning} stands here with another digest: restore it first")
        settled = standing.state not in UNSETTLED
        if settled and verify_settings(host, head.tuning, settings).verified:
            return _applied(standing, [], [])
        _refuse_unsettled(host, but=standing.tuning)
        refuse_below(host, standing)
        take_back(host, standing)
    _refuse_unsettled(host)
    rows = observe_all(host, settings, head.tuning)
    refuse_unwritable(host, rows, head)
    _refuse_unsupported(host, rows, head)
    _refuse_unexpected(rows, expect)
    try:
        journal = Journal(head, Journals(host).next_sequence())
        record(host, journal, rows)
    except OSError as error:
        raise Refused(f"what stands here cannot be kept: {complaint(error)}") from None
    if changes_network(journal):
        journal.answering = answering(host)
    try:
        restarted, after = carry_out(host, journal)
        refuse_lost(host, journal)
    except Exception as error:
        raise _undo(host, journal, error) from None
    before = [row.reading for row in rows]
    diff = diff_of(journal.entries, before, [row.reading for row in after])
    return _applied(journal, diff, restarted)


def _applied(journal: Journal, diff: List[Difference], restarted: List[str]) -> Json:
    return {
        "changed": bool(diff),
        "diff": diff,
        "restarted": restarted,
        "state": journal.state,
    }


def _read_expect(request: Request, settings: List[Setting]) -> Expected:
    fields = request.inside("expect")
    expect = {}
    for setting in settings:
        row = fields.inside(setting.id)
        expect[setting.id] = {name: row.raw(name) for name in Reading._fields}
        row.done()
    fields.done()
    return expect


def _refuse_unsettled(host: Host, but: str = "") -> None:
    for journal in Journals(host).all():
        if journal.state != "confirmed" and journal.tuning != but:
            what = f"the tuning {journal.tuning} on this host is {journal.state}"
            raise Refused(f"{what}: restore it first")
    for why in Journals(host).damaged().values():
        raise Refused(why)


def _refuse_unsupported(host: Host, rows: Sequence[Row], head: Head) -> None:
    for row in rows:
        if row.problem:
            raise Refused(f"{row.setting.id}: {row.problem}")
    if any(row.tried_by_boot and row.status == "change" for row in rows):
        # A kernel is made the default by its confirmation alone, and falls back by its boot hook.
        if not (head.confirm_within and head.grace_boots):
            what = "what a boot tries has to be confirmed after it"
            raise Refused(f"{what}: confirm_within, grace_boots")
        for own in drifted(host):
            what = "{tuning} does not stand here: {id} {reason}: mend that first"
            raise Refused(what.format(**own))
    try:
        if head.confirm_within:
            probe_hook(host)
    except Unsupported as why:
        raise Refused(f"confirm_within: {why}") from None


def _refuse_unexpected(rows: Sequence[Row], expect: Expected) -> None:
    for row in rows:
        planned = expect[row.setting.id]
        for name, value in row.reading._asdict().items():
            if not alike(value, planned[name]):
                text = f"{name} is {shown(value)}, the plan saw {shown(planned[name])}"
                raise Refused(f"{row.setting.id}: {text}")


def _undo(host: Host, journal: Journal, error: Exception) -> AgentError:
    text = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    try:
        take_back(host, journal)
    except Exception as worse:
        return Failed(f"{text}; NOT undone: {complaint(worse)}")
    left = what_differs(host, journal)
    if left:
        return Failed(f"{text}; NOT undone: {', '.join(left)}")
    return TakenBack(f"{text}; undone")
