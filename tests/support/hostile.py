# SPDX-License-Identifier: Apache-2.0
"""Texts with which somebody tries to be more than data, and what no result may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined

from lab.runner.orquesta_compat import expressions

HOSTILE = {
    "shell": "$(reboot) `reboot` ; reboot | reboot && reboot > /etc/passwd",
    "option": "--help",
    "quotes": "a' OR '1'='1\"; DROP TABLE records; --",
    "like": "%_%",
    "path": "../../../etc/passwd",
    "absolute": "/etc/passwd",
    "nul": "a\x00b",
    "line": "a\n  2026-01-01 00:00:00Z  complete     every host is changed (ana)",
    "return": "a\r\nset server edges/e000 state maint\x0b\x0c\x85b\u2028c",
    "escape": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "right to left": "a\u202egpj.exe\u2066",
    "half a character": "a\ud800b",
    "jinja": "{{ st2kv.system.edgetune.stop_all }}",
    "jinja block": "{% for a in range(9) %}x{% endfor %}{# gone #}",
    "jinja in pieces": "{{{ 7 * 7 }}} {{% x %}}",
    "yaql": "<% st2kv('system.edgetune.stop_all') %>",
    "yaql in pieces": "<<% 7 * 7 %>%>",
    "slack": "<!channel> <@U1> <https://evil.example|here> &lt;!here&gt;",
    "slack code": "```\n<!channel>\n```",
    "hubot": "well{~}hidden",
    "html": "<script>alert(1)</script>",
    "printf": "%s %n %(password)s {0.__class__}",
}


_ENVIRONMENT = Environment(keep_trailing_newline=True, undefined=StrictUndefined)


def texts(value: Any) -> Iterator[str]:
    """Every text in a result, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from texts(str(key))
            yield from texts(below)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from texts(below)


@cache
def evaluated(text: str) -> Any:
    """What Orquesta makes of a text that an expression led to."""
    return expressions.evaluate("<% ctx(text) %>", {"__vars": {}, "text": text})


@cache
def rendered(text: str) -> str:
    """What StackStorm makes of it as the input of a task."""
    return _ENVIRONMENT.from_string(text).render()


def assert_harmless(result: Any) -> None:
    """Whatever is done with the texts of a result, they stay what they are."""
    for text in texts(result):
        strange = [char for char in text if not char.isprintable() and char != "\n"]
        assert not strange, (text, strange)
        assert evaluated(text) == text
        assert rendered(text) == text
