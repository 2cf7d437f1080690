# SPDX-License-Identifier: Apache-2.0
"""Mistakes about the load balancer."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

TRAFFIC = mutations_of(
    "lib/edgetune/traffic",
    ["traffic_contract", "lib_traffic_answers", "lib_traffic_haproxy"],
    (
        "HAProxy's queued requests are no sessions",
        "haproxy_answers.py",
        'sessions=_number(stat, "scur") + _number(stat, "qcur")',
        'sessions=_number(stat, "scur")',
    ),
    (
        "a state that HAProxy did not take is taken for set",
        "drivers/haproxy.py",
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
        "a withdrawal lets clients of former days to an isolated server again",
        "drivers/haproxy.py",
        "        if server not in known or not known[server].withdrawn:\n",
        "        if True:\n",
    ),
    (
        "what somebody else withdrew is let in again",
        "drivers/haproxy.py",
        "        self._set(server, withdrawn or READY, _deadline())\n",
        "        self._set(server, READY, _deadline())\n",
    ),
    (
        "an error of HAProxy is taken for obedience",
        "drivers/haproxy.py",
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
        "return not self.withdrawn and self.up",
        "return not self.withdrawn",
    ),
    (
        "a server that drains is in service",
        "driver.py",
        "return not self.withdrawn and self.up",
        "return self.up",
    ),
)
