# SPDX-License-Identifier: Apache-2.0
"""Mistakes about the load balancer."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

TRAFFIC = mutations_of(
    "lib/edgetune/traffic",
    ["lib_traffic_answers", "lib_traffic_haproxy", "rollout_traffic_steps"],
    (
        "HAProxy's queued requests are no sessions",
        "haproxy_answers.py",
        'sessions=_number(stat, "scur") + _number(stat, "qcur")',
        'sessions=_number(stat, "scur")',
    ),
    (
        "a state that HAProxy did not take is taken for set",
        "haproxy.py",
        "        if now != state:\n",
        "        if False:\n",
    ),
    (
        "a server in maint by its configuration, its address or another one is ready",
        "haproxy_answers.py",
        "_MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20",
        "_MAINT_BITS = 0x01",
    ),
    (
        "a server that drains is ready",
        "haproxy_answers.py",
        "_DRAIN_BITS = 0x08 | 0x10",
        "_DRAIN_BITS = 0x10",
    ),
    (
        "an error of HAProxy is taken for obedience",
        "haproxy.py",
        "        if refusal:\n",
        "        if False:\n",
    ),
    (
        "an answer that was cut off is taken for the whole",
        "haproxy_answers.py",
        '    if not between or not stats_text.endswith("\\n\\n"):\n',
        "    if not between:\n",
    ),
    (
        "servers that only one of two answers names are left out",
        "haproxy_answers.py",
        "    if states.keys() != stats.keys():\n",
        "    if False:\n",
    ),
    (
        "a server whose check fails is up",
        "haproxy_answers.py",
        '"DOWN": False',
        '"DOWN": True',
    ),
    (
        "an answer may take for ever",
        "conversation.py",
        "        sock.settimeout(_left(deadline))\n        part",
        "        part",
    ),
    (
        "a server that is down is in service",
        "driver.py",
        'return self.state == "ready" and self.up',
        'return self.state == "ready"',
    ),
    (
        "a server that drains is in service",
        "driver.py",
        'return self.state == "ready" and self.up',
        "return self.up",
    ),
)
