# SPDX-License-Identifier: Apache-2.0
"""Tunings: named, versioned sets of settings, with the reason and the source of each value; and
which hosts one is for: by operating system, kernel, driver of the network card, CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Union

from edgetune.agent.vocabulary.grammar import Parts, Wrong
from edgetune.agent.vocabulary.kind import DISRUPTIONS, SERVICE_NAME, Kind
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.host import HostFacts
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Guard, Intent
from edgetune.base.documents.reading import digest_of
from edgetune.base.fields import Fields, find_file
from edgetune.base.files import Load, load_yaml
from edgetune.base.names import several
from edgetune.base.sanitize import Pattern
from edgetune.intent.metrics.catalogue import METRICS, WORK

_KERNEL = Pattern(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}", "write it like 5.15")


@dataclass(frozen=True)
class Applicability:
    """What a host must be; what is empty or 0 does not matter.

    ``os`` holds IDs of os-release, ``drivers`` those that the interfaces of the settings may
    have, ``cpu_vendors`` names as in /proc/cpuinfo; the others are at least so many, or so new.
    """

    os: tuple[str, ...] = ()
    kernel: str = ""
    drivers: tuple[str, ...] = ()
    cpu_vendors: tuple[str, ...] = ()
    cpus: int = 0
    numa_nodes: int = 0

    def problems(self, facts: HostFacts, interfaces: Sequence[str]) -> Iterator[str]:
        """Why a tuning with these interfaces is not for a host; none where it is."""
        if self.os and facts.os.id not in self.os:
            yield f"it runs {facts.os.id or 'an unknown system'}, not {_any_of(self.os)}"
        if self.kernel and _version(facts.kernel) < _version(self.kernel):
            yield f"its kernel is {facts.kernel}, older than {self.kernel}"
        count, nodes = facts.cpus.count, len(facts.cpus.nodes) or 1
        if self.cpu_vendors and facts.cpus.vendor not in self.cpu_vendors:
            vendor = facts.cpus.vendor or "of an unknown maker"
            yield f"its CPUs are {vendor}, not {_any_of(self.cpu_vendors)}"
        if count < self.cpus:
            yield f"it has {count} CPUs, less than {self.cpus}"
        if nodes < self.numa_nodes:
            yield f"it has {several(nodes, 'NUMA node')}, less than {self.numa_nodes}"
        for name in interfaces if self.drivers else ():
            driver = facts.nics[name].driver if name in facts.nics else None
            if driver not in self.drivers:
                yield f"the driver of {name} is {driver or 'unknown'}, not {_any_of(self.drivers)}"


def read_applicability(fields: Fields) -> Applicability:
    """From the field ``applies_to`` of a tuning; InputError names what is wrong with it."""
    if fields.raw("applies_to", None) is None:
        return Applicability()
    below = fields.inside("applies_to")
    applicability = Applicability(
        os=below.texts("os", ()),
        kernel=below.text("kernel", "", pattern=_KERNEL),
        drivers=below.texts("drivers", ()),
        cpu_vendors=below.texts("cpu_vendors", ()),
        cpus=below.whole("cpus", 0, minimum=1),
        numa_nodes=below.whole("numa_nodes", 0, minimum=1),
    )
    below.done()
    return applicability


def _version(text: str) -> tuple[int, ...]:
    """``(5, 13)`` for "5.13" and for "5.13-rc1"."""
    match = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _any_of(names: Sequence[str]) -> str:
    return " or ".join(names)


_WORD = Pattern(r"[a-z][a-z0-9_]*", "small letters, digits and _, a letter first")
_VERSION = Pattern(r"\d+\.\d+\.\d+", "write it like 1.0.0")
_NUMBERS = r"(-?[0-9]+|infinity)([\s:]+(-?[0-9]+|infinity))*"


Value = Union[str, Mapping[str, Union[str, int]]]


EACH = "*"
"""Stands for every interface of a host that is up."""


@dataclass(frozen=True)
class SettingTemplate:
    """What a tuning sets; ``value`` may hold Jinja over the facts of a host.

    On a host it is one `Setting`, or one for each interface.
    One that is ``optional`` is left out where a host does not support it.
    """

    kind: str
    target: Mapping[str, str]
    value: Value
    only: str | None
    disruption: str
    restart: str | None
    why: str
    source: str
    where: str
    optional: bool = False

    @property
    def id(self) -> str:
        """Names the setting on a host, such as ``sysctl:net.core.somaxconn``."""
        return KINDS[self.kind].id_of(self.target)

    def is_on_host_as(self, id: str) -> bool:
        """Whether a host has it under this id: one for each of its interfaces has several."""
        each = self.target.get("interface") == EACH and id.startswith(f"{self.kind}:")
        return each or id == self.id


@dataclass(frozen=True)
class Tuning:
    """A tuning as it stands in the catalogue; ``digest`` covers everything in its file.

    ``metrics`` are those that it is judged by, with their parts, by name.
    """

    name: str
    version: str
    summary: str
    intent: Intent
    guards: tuple[Guard, ...]
    settings: tuple[SettingTemplate, ...]
    digest: str
    applies_to: Applicability = Applicability()
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def disruption(self) -> str:
        """The strongest disruption of its settings."""
        return max((setting.disruption for setting in self.settings), key=DISRUPTIONS.index)

    @property
    def sets_bios(self) -> bool:
        """Whether BMCs set a part of it."""
        return any(KINDS[setting.kind].by_bmc for setting in self.settings)

    def setting_of(self, id: str) -> SettingTemplate:
        """The setting that a host has under this id; KeyError when there is none."""
        for setting in self.settings:
            if setting.is_on_host_as(id):
                return setting
        raise KeyError(id)


def is_expression(text: str) -> bool:
    """Whether a text is worked out on each host: it holds Jinja."""
    return "{{" in text or "{%" in text


def find_tuning(
    name: str, directories: Sequence[Path], metrics: Mapping[str, Metric] = METRICS
) -> Tuning:
    """The tuning of that name from the first directory that holds it; InputError names all.

    ``metrics`` are those that it may name.
    """
    return load_tuning(find_file("tuning", name, directories), metrics)


def load_tuning(
    path: Path, metrics: Mapping[str, Metric] = METRICS, load: Load = load_yaml
) -> Tuning:
    """Read and check one file of the catalogue; InputError names file and field."""
    data = load(path)
    fields = Fields(data, str(path))
    name = fields.text("name", pattern=_WORD)
    intent = _read_intent(fields.inside("intent"), metrics)
    guards = tuple(_read_guard(guard, metrics) for guard in fields.each("guards"))
    judged = [intent.metric, *(guard.metric for guard in guards), WORK]
    parts = [part for metric in judged for part in metrics[metric].parts]
    tuning = Tuning(
        name=name,
        version=fields.text("version", pattern=_VERSION),
        summary=fields.words("summary"),
        intent=intent,
        guards=guards,
        settings=tuple(
            _read_setting(setting, f"{path}: settings[{index}]")
            for index, setting in enumerate(fields.each("settings"))
        ),
        digest=digest_of(data),
        applies_to=read_applicability(fields),
        metrics={name: metrics[name] for name in (*judged, *parts)},
    )
    if not tuning.settings:
        raise fields.wrong("settings", "is empty")
    if tuning.name != path.stem:
        raise fields.wrong("name", f"{tuning.name!r} is not the name of its file")
    _refuse_twice(fields, "guards", [guard.metric for guard in guards], "is guarded twice")
    _refuse_twice(fields, "settings", [setting.id for setting in tuning.settings], "is set twice")
    fields.done()
    return tuning


def _refuse_twice(fields: Fields, field: str, names: Sequence[str], what: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise fields.wrong(f"{field}[{index}]", f"{name} {what}")


def _read_intent(fields: Fields, metrics: Mapping[str, Metric]) -> Intent:
    goals = [goal for goal in ("improve", "no_harm") if fields.raw(goal, None) is not None]
    if len(goals) != 1:
        raise fields.wrong("improve", "exactly one of improve and no_harm must be given")
    goal = goals[0]
    metric = fields.text(goal, choices=list(metrics))
    margin = fields.number("margin", 0.0 if goal == "improve" else None, minimum=0, maximum=10)
    if margin is None:
        raise fields.wrong("margin", "is missing: no_harm needs the share that counts as harm")
    fields.done()
    return Intent(goal, metric, float(margin))


def _read_guard(fields: Fields, metrics: Mapping[str, Metric]) -> Guard:
    metric = fields.text("metric", choices=list(metrics))
    margin = float(fields.number("margin", 0.0, minimum=0, maximum=10))
    guard = Guard(metric, margin, fields.flag("optional", False))
    fields.done()
    return guard


def _read_setting(fields: Fields, where: str) -> SettingTemplate:
    # All of them are loaded only to name them.
    name = fields.text("kind", choices=None if fields.raw("kind", None) in KINDS else list(KINDS))
    kind = KINDS[name]
    target = _read_target(fields, kind)
    value = _read_value(fields, kind, target)
    setting = SettingTemplate(
        kind=name,
        target=target,
        value=value,
        only=_read_only(fields, name, value),
        disruption=_read_disruption(fields, kind),
        restart=fields.text("restart", target.get("service"), pattern=SERVICE_NAME),
        why=fields.words("why"),
        source=fields.words("source"),
        where=where,
        optional=fields.flag("optional", False),
    )
    fields.done()
    return setting


def _in_words(markdown: str) -> str:
    """A sentence of the reference, within one of an error."""
    return markdown.replace("`", "").rstrip(".")


def _read_target(fields: Fields, kind: Kind) -> Mapping[str, str]:
    target = {}
    for name, part in kind.target.items():
        pattern = rf"{part.pattern}|\{EACH}" if name == "interface" else part.pattern
        target[name] = fields.text(name, pattern=Pattern(pattern, _in_words(part.meaning)))
        why = part.refusal(target[name])
        if why:
            raise fields.wrong(name, why)
    return target


def _read_value(fields: Fields, kind: Kind, target: Mapping[str, str]) -> Value:
    """The value as it is written, checked as far as that is possible without a host."""
    raw = fields.raw("value")
    written: Value
    if isinstance(kind.value, Parts):
        below = fields.inside("value")
        written = {name: _read_part(below, name) for name in below.names()}
    elif isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        raise fields.wrong("value", "must be text or a number")
    else:
        written = str(raw)
    try:
        _check_value(fields, kind, target, written)
    except Wrong as wrong:
        takes = f"; {kind.name} takes: {_in_words(kind.takes)}"
        field = f"value.{wrong.part}" if wrong.part else "value"
        raise fields.wrong(field, f"{wrong}{takes}") from None
    return written


def _read_part(below: Fields, name: str) -> str | int:
    part = below.raw(name)
    # YAML reads on and off as true and false.
    if isinstance(part, bool):
        return "on" if part else "off"
    return part if isinstance(part, int) else str(part)


def _check_value(fields: Fields, kind: Kind, target: Mapping[str, str], written: Value) -> None:
    parts = {"": written} if isinstance(written, str) else written
    made = [name for name, part in parts.items() if is_expression(str(part))]
    for name in made:
        kind.value.part(name)
        _check_expression(fields, f"value.{name}" if name else "value", str(parts[name]))
    if not made:
        kind.of_text(target, written)
    elif isinstance(kind.value, Parts) and len(made) < len(parts):
        kind.value.of_text({name: part for name, part in parts.items() if name not in made})


def _check_expression(fields: Fields, field: str, text: str) -> None:
    # Jinja is imported where a tuning needs it.
    from edgetune.intent.expressions import check_expression

    try:
        check_expression(text)
    except ValueError as error:
        raise fields.wrong(field, str(error)) from None


def _read_only(fields: Fields, name: str, value: Value) -> str | None:
    only: str | None = fields.text("only", None, choices=("raise", "lower"))
    if only and not KINDS[name].ordered:
        raise fields.wrong("only", f"has no meaning for {name}")
    said = [value] if isinstance(value, str) else map(str, value.values())
    known = [text for text in said if not is_expression(text)]
    if only and not all(re.fullmatch(_NUMBERS, text.strip()) for text in known):
        raise fields.wrong("only", "needs a value made of numbers")
    return only


def _read_disruption(fields: Fields, kind: Kind) -> str:
    least = kind.disruption
    given = fields.text("disruption", least, choices=DISRUPTIONS)
    if DISRUPTIONS.index(given) < DISRUPTIONS.index(least):
        raise fields.wrong("disruption", f"{given} is less than this kind needs ({least})")
    if given == "live" and fields.raw("restart", None):
        return "restart"
    return str(given)
