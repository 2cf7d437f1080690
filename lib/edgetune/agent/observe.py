# SPDX-License-Identifier: Apache-2.0
"""The settings of a request: how each stands on this host, and what would have to be done."""

from typing import Any, Dict, Iterable, List, Optional, Sequence

from edgetune.agent.host import LOCK, Host
from edgetune.agent.journal import Entry, Head, Journal, Journals, Reading
from edgetune.agent.kinds import Handler, handler_on, hook_files
from edgetune.agent.protocol import Json, Request, Unsupported, or_none, shortened
from edgetune.agent.readings import probe_restart
from edgetune.agent.vocabulary.grammar import Wrong
from edgetune.agent.vocabulary.kind import SERVICE_NAME
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from edgetune.agent.vocabulary.places import STATE
from edgetune.agent.vocabulary.values import Value, bounded, described

LONGEST_REASON = 500
LONGEST_VALUE = 2000
"""More than a tuning can ask for in one line."""


class Row:
    """How one setting stands on this host. ``problem`` says why the host cannot do it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.runtime: Optional[Value] = None
        self.persistent: Optional[Value] = None
        self.wanted: Value = setting.value
        self.runtime_differs = False
        self.stored_differs = False
        self.tried_by_boot = False
        self.problem: Optional[str] = None

    @property
    def reading(self) -> Reading:
        """Both facts."""
        return Reading(self.runtime, self.persistent)

    @property
    def to_be_set(self) -> Setting:
        """The setting with the value that this host gets."""
        return self.setting.with_value(self.wanted)

    @property
    def shown(self) -> Json:
        """As it stands in an answer."""
        reason = shortened(self.reason, LONGEST_REASON)
        return dict(self.reading._asdict(), id=self.setting.id, wanted=self.wanted, reason=reason)

    @property
    def as_wanted(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.problem or self.runtime_differs or self.stored_differs)

    @property
    def is_set(self) -> bool:
        """Whether nothing more can be done before the next boot."""
        if self.tried_by_boot and not self.problem:
            return not self.stored_differs
        return self.as_wanted

    @property
    def status(self) -> str:
        """``change``, ``noop`` or ``unsupported``."""
        if self.problem:
            return "unsupported"
        return "noop" if self.as_wanted else "change"

    @property
    def reason(self) -> str:
        """The same in words."""
        if self.problem:
            return self.problem
        if self.as_wanted:
            return "is as wanted"
        if self.tried_by_boot and not self.stored_differs:
            return "comes with the next boot"
        if not self.stored_differs:
            return "differs now"
        return "differs" if self.runtime_differs else "would be lost at the next boot"


def observe(
    host: Host,
    setting: Setting,
    tuning: str,
    running: Optional[Value] = None,
    stored: bool = True,
) -> Row:
    """Read one setting, and find out what would have to be done. Touches nothing.

    ``running`` is taken for what is in force where a service has yet to be restarted. Without
    ``stored`` nobody asks whether the setting is kept over a boot.
    """
    row = Row(setting)
    with host.read_cache():
        try:
            handler = handler_on(host, setting.kind)
            row.tried_by_boot = handler.tried_by_boot
            row.persistent = stored_value(handler, setting) if stored else None
            row.runtime = asked(handler, setting) if running is None else running
            rounded = handler.rounded(setting.target, setting.value)
            row.wanted = bounded(setting.only, row.runtime, rounded)
            row.runtime_differs = not reached(handler, setting, row.runtime)
            # Where nobody has said anything, a default that is good enough now is so after a boot.
            unsaid = row.persistent is None and setting.only
            kept = not row.runtime_differs if unsaid else reached(handler, setting, row.persistent)
            row.stored_differs = stored and not kept
            if row.runtime_differs:
                handler.probe(row.setting)
                if row.setting.restart and not host.booting:
                    probe_restart(host, row.setting.restart)
            if row.stored_differs:
                handler.probe_stored(row.setting, tuning)
        except Unsupported as why:
            row.problem = str(why)
        except ValueError as error:
            row.problem = f"cannot be compared: {error}"
    return row


def observe_all(host: Host, settings: Sequence[Setting], tuning: str) -> List[Row]:
    """The same of many; what they share is read once."""
    with host.read_cache():
        return [observe(host, setting, tuning) for setting in settings]


def asked(handler: Handler, setting: Setting) -> Value:
    """What is in force, in the terms of the setting; Unsupported as `Handler.runtime`."""
    with handler.host.read_cache():
        return _bounded(handler.in_terms(setting, handler.runtime(setting.target)))


def stored_value(handler: Handler, setting: Setting) -> Optional[Value]:
    """What will be in force after a boot, as far as the setting speaks of it."""
    found = handler.persistent(setting.target)
    said = None if found is None else handler.in_terms(setting, found)
    return None if said is None or said == {} else _bounded(said)


def _bounded(value: Value) -> Value:
    """The same for the same; of a long text its ends and its digest."""
    if not isinstance(value, str) or len(value) <= LONGEST_VALUE:
        return value
    return f"{shortened(value, LONGEST_VALUE)} ({described(value.encode())})"


def reached(handler: Handler, setting: Setting, value: Optional[Value]) -> bool:
    """Whether a value is as the setting wants it; ``only`` is content with more, or less."""
    if value is None:
        return False
    wanted = handler.rounded(setting.target, setting.value)
    return handler.same(value, bounded(setting.only, value, wanted))


def in_force(host: Host, setting: Setting) -> bool:
    """Whether a setting is as wanted now; Unsupported where that is not known."""
    handler = handler_on(host, setting.kind)
    return reached(handler, setting, asked(handler, setting))


def stands(host: Host, setting: Setting) -> bool:
    """The same, where it can be in force now; else whether it is as wanted at the next boot."""
    handler = handler_on(host, setting.kind)
    if handler.tried_by_boot:
        return reached(handler, setting, stored_value(handler, setting))
    return in_force(host, setting)


def current(host: Host, setting: Setting) -> Reading:
    """What is in force and what is stored; None for what the host does not have."""
    handler = handler_on(host, setting.kind)
    return Reading(or_none(asked, handler, setting), or_none(stored_value, handler, setting))


def current_all(host: Host, entries: Sequence[Entry]) -> List[Reading]:
    """The same of many; what they share is read once."""
    with host.read_cache():
        return [current(host, entry.setting) for entry in entries]


Difference = Dict[str, Any]


def diff_of(
    entries: Sequence[Entry], before: Sequence[Reading], after: Sequence[Reading]
) -> List[Difference]:
    """What differs, setting by setting: ``id``, and the readings ``before`` and ``after``."""
    return [
        {"id": entry.setting.id, "before": was._asdict(), "after": now._asdict()}
        for entry, was, now in zip(entries, before, after)
        if not was.is_like(now)
    ]


def read_settings(request: Request) -> List[Setting]:
    """The settings of a request, each checked by its kind."""
    settings: List[Setting] = []
    for fields in request.each("settings"):
        setting = _read_setting(fields)
        if setting.id in [other.id for other in settings]:
            raise fields.wrong("id", "is set twice")
        settings.append(setting)
    if not settings:
        raise request.wrong("settings", "is empty")
    for setting in settings:
        setting.siblings = settings
    return settings


def _read_setting(fields: Request) -> Setting:
    name = fields.text("kind", ".*")
    if not KINDS.on_hosts(name):
        raise fields.wrong("kind", "is none that this agent knows")
    kind = KINDS[name]
    inside, target = fields.inside("target"), {}
    for field, part in kind.target.items():
        target[field] = inside.text(field, part.pattern)
        why = part.refusal(target[field])
        if why:
            raise inside.wrong(field, why)
    inside.done()
    only = fields.optional("only", "raise|lower")
    if only and not kind.ordered:
        raise fields.wrong("only", f"has no meaning for {name}")
    try:
        value = kind.read(target, fields.raw("value"))
    except Wrong as wrong:
        raise fields.wrong(f"value.{wrong.part}" if wrong.part else "value", str(wrong)) from None
    setting = Setting(name, target, value, only, fields.optional("restart", SERVICE_NAME))
    if fields.text("id", ".*") != setting.id:
        raise fields.wrong("id", f"is not {setting.id}")
    if only:
        try:
            bounded("raise", value, value)
        except ValueError:
            raise fields.wrong("only", "needs a value made of numbers") from None
    fields.done()
    return setting


def refuse_unwritable(host: Host, rows: Sequence[Row], head: Head) -> None:
    """Let each row that is to be changed say why a file that this needs cannot be written."""

    def first_problem(files: Iterable[str]) -> Optional[str]:
        return next(filter(None, map(host.why_not_writable, files)), None)

    changing = [row for row in rows if row.status == "change"]
    if not changing:
        return
    common = first_problem([f"{STATE}/tunings/{head.tuning}.json", LOCK, *hook_files(host)])
    journal = Journal(head, Journals(host).next_sequence())
    for row in changing:
        files = handler_on(host, row.setting.kind).files if row.stored_differs else None
        needed = or_none(files, journal, [row.to_be_set]) if files else None
        row.problem = common or first_problem(needed or ())
