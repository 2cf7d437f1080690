# SPDX-License-Identifier: Apache-2.0
"""The settings of a request."""

from typing import List

from edgetune.agent.protocol import Request
from edgetune.agent.vocabulary.grammar import Wrong
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.targets import SERVICE_NAME
from edgetune.agent.vocabulary.values import bounded


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
    for field, own in kind.target.items():
        target[field] = inside.text(field, own.pattern)
        why = own.refusal(target[field])
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
