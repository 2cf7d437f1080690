# SPDX-License-Identifier: Apache-2.0
"""Settings of a tuning: ``plan``, ``apply``, ``verify``, ``confirm`` and ``restore``."""

import time
from typing import Dict, List, NamedTuple, Optional, Sequence

from edgetune.agent.boot_hook import FOLLOWING, BootHook, disarm_timer
from edgetune.agent.change import carry_out, commit, record, tried
from edgetune.agent.drift import drifted
from edgetune.agent.host import Host, room_or_not
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
from edgetune.agent.reachable import (
    LINK_UP,
    RIGHT_NOW,
    answering,
    changes_network,
    lost_connections,
    refuse_lost,
)
from edgetune.agent.readings import START_WAIT, awaited_state
from edgetune.agent.undo import (
    Undone,
    refuse_below,
    take_back,
    take_back_live,
    way_back,
    what_differs,
)
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.values import alike, shown


def plan(host: Host, request: Request) -> Json:
    """What a tuning would do here; writes nothing at all."""
    tuning = request.text("tuning", TUNING)
    digest = request.text("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    rows = observe_all(host, settings, tuning)
    refuse_unwritable(host, rows, Head(tuning, digest))
    shown = [dict(row.shown, status=row.status) for row in rows]
    return {"settings": shown}


def verify(host: Host, request: Request) -> Json:
    """Whether every setting is as wanted, now and after a boot, and the services run.

    ``way_back`` says what taking the tuning back will lead to; it is empty where there is none.
    """
    tuning = request.text("tuning", TUNING)
    request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    journal = Journals(host).load(tuning)
    led = way_back(host, journal) if journal else {}
    way = {name: found and found._asdict() for name, found in led.items()}
    found = verify_settings(host, tuning, settings, RIGHT_NOW)
    return dict(found.document(), way_back=way)


class Verified(NamedTuple):
    """How a tuning stands: its journal's state, its settings, and the states of its services.

    ``lost`` says by peer how many connections it does not answer that it did before the change.
    """

    state: str
    rows: List[Row]
    services: Dict[str, str]
    lost: Dict[str, int]

    @property
    def verified(self) -> bool:
        """Whether all is well."""
        running = all(state == "active" for state in self.services.values())
        return running and not self.lost and all(map(self.is_well, self.rows))

    def is_well(self, row: Row) -> bool:
        """Whether a setting is as wanted; before its confirmation one boot has to have tried it."""
        tried = self.state == "provisional" and row.tried_by_boot
        return row.as_wanted or (tried and not (row.problem or row.runtime_differs))

    def document(self) -> Json:
        """For an answer."""
        return {
            "verified": self.verified,
            "state": self.state,
            "settings": [dict(row.shown, ok=self.is_well(row)) for row in self.rows],
            "services": self.services,
            "lost_connections": self.lost,
        }


def verify_settings(
    host: Host, tuning: str, settings: List[Setting], patience: float = LINK_UP
) -> Verified:
    """How a tuning stands; connections have so many seconds to be answered."""
    journal = Journals(host).load(tuning)
    named = [setting.restart for setting in settings if setting.restart]
    # Just after a boot a service may not have come up yet, and tells nothing of its properties.
    services = {name: awaited_state(host, name, START_WAIT) for name in dict.fromkeys(named)}
    # Just after a boot what needs its interface up may not be set again yet.
    end = time.monotonic() + START_WAIT
    while host.exists(FOLLOWING) and time.monotonic() < end:
        time.sleep(0.1)
    rows = observe_all(host, settings, tuning)
    lost = lost_connections(host, journal, patience) if journal else {}
    return Verified(journal.state if journal else "none", rows, services, lost)


Expected = Dict[str, Dict[str, object]]
"""By the id of a setting, what the plan saw: its fields are those of ``Reading``."""


def apply(host: Host, request: Request) -> Json:
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
        for loss in drifted(host):
            what = "{tuning} does not stand here: {id} {reason}: mend that first"
            raise Refused(what.format(**loss))
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


def confirm(host: Host, request: Request) -> Json:
    """Keep a change that verifies; the revert timer finds it confirmed, or was there first."""
    epoch = request.epoch()
    tuning = request.text("tuning", TUNING)
    digest = request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    with host.lock():
        host.fence(epoch)
        journal = Journals(host).load(tuning)
        if journal:
            _refuse_another(journal, digest, settings)
        result = verify_settings(host, tuning, settings)
        if journal and journal.state == "provisional" and result.verified and tried(journal):
            # Other tunings have to stand on another kernel, too: names and queues may have moved.
            rows = [row for row in drifted(host) if row["tuning"] != journal.tuning]
            if rows:
                what = "; ".join("{tuning}: {id} {reason}".format(**row) for row in rows[:3])
                raise Failed(f"other tunings do not stand on this kernel: {what}")
            commit(host, journal)
            # From here on each setting has to be kept as well.
            result = verify_settings(host, tuning, settings)._replace(state="confirmed")
        kept = journal is not None and journal.state not in UNSETTLED and result.verified
        if kept and journal is not None and journal.state != "confirmed":
            journal.state = "confirmed"
            # Else a timer that is still running would end a later restore of single settings.
            journal.deadline = None
            Journals(host).save(journal)
            disarm_timer(host, journal)
            BootHook(host).sync()
        state = journal.state if journal else "none"
        return dict(result.document(), confirmed=kept, state=state)


def _refuse_another(journal: Journal, digest: Optional[str], settings: Sequence[Setting]) -> None:
    """Nothing is to be kept that was not looked at."""
    if digest not in (None, journal.digest):
        raise Refused(f"{journal.tuning} stands here with another digest: {journal.digest}")
    asked = {setting.id for setting in settings}
    differing = asked ^ {entry.setting.id for entry in journal.entries}
    if differing:
        what = ", ".join(sorted(differing))
        raise Refused(f"{journal.tuning} stands here with other settings: {what}")


def restore(host: Host, request: Request) -> Json:
    """Take a tuning back from the journal; safe to repeat.

    With ``rollout`` only what that rollout did: another one's change is not ours to take back.
    With ``live`` only the runtime values of the settings it names; see `take_back_live`.
    """
    epoch = request.epoch()
    drained = request.flag("drained", default=False)
    tuning = request.text("tuning", TUNING)
    rollout = request.optional("rollout", LINE)
    live = request.texts("live")
    request.done()
    with host.lock():
        host.refuse_in_service(drained)
        # Nobody with an older epoch can write what this one cannot.
        with room_or_not():
            host.fence(epoch)
        journal = Journals(host).load(tuning)
        if journal is None:
            # What an agent may have left that was killed at its very first or last step.
            Journals(host).forget(tuning)
            BootHook(host).sync()
        ours = journal if journal and rollout in (None, journal.rollout) else None
        undone = Undone(False, [], [])
        if ours is not None and live is None:
            undone = take_back(host, ours)
        elif ours is not None and live is not None:
            known = [entry.setting.id for entry in ours.entries]
            for index, name in enumerate(live):
                if name not in known:
                    raise request.wrong(f"live[{index}]", f"is no setting of {ours.tuning} here")
            undone = take_back_live(host, ours, live)
        return dict(undone._asdict(), nothing_to_restore=ours is None)
