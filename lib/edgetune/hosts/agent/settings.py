# SPDX-License-Identifier: Apache-2.0
"""The settings of a request."""

from typing import List, Optional, Sequence

from edgetune.hosts.agent.kinds import KINDS
from edgetune.hosts.agent.protocol import SERVICE, Fields
from edgetune.hosts.agent.values import Target, Value, bounded


class Setting:
    """One thing a tuning sets on this host; ``beside`` are all the settings of that tuning."""

    def __init__(
        self, kind: str, target: Target, value: Value, only: Optional[str], restart: Optional[str]
    ) -> None:
        self.kind = kind
        self.target = target
        self.value = value
        self.only = only
        self.restart = restart
        self.beside: Sequence[Setting] = ()

    @property
    def id(self) -> str:
        """Names it on a host, such as ``nic.rps:eth0``."""
        what = ".".join(self.target[name] for name in KINDS[self.kind].target)
        return f"{self.kind}:{what}" if what else self.kind


def read_settings(request: Fields) -> List[Setting]:
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
        setting.beside = settings
    return settings


def _read_setting(fields: Fields) -> Setting:
    name = fields.text("kind", ".*")
    if name not in KINDS:
        raise fields.wrong("kind", "is not known; known: " + ", ".join(KINDS))
    kind = KINDS[name]
    below = fields.inside("target")
    target = {field: below.text(field, pattern) for field, pattern in kind.target.items()}
    below.done()
    only = fields.optional("only", "raise|lower")
    if only and not kind.ordered:
        raise fields.wrong("only", f"has no meaning for {name}")
    value = kind.check_value(fields)
    setting = Setting(name, target, value, only, fields.optional("restart", SERVICE))
    if fields.text("id", ".*") != setting.id:
        raise fields.wrong("id", f"is not {setting.id}")
    if only:
        _check_numbers(fields, value)
    fields.done()
    return setting


def _check_numbers(fields: Fields, value: Value) -> None:
    try:
        bounded("raise", value, value)
    except ValueError:
        raise fields.wrong("only", "needs a value made of numbers") from None
