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
HOOKS = mutations_of(
    "lib/edgetune/traffic",
    ["lib_traffic_hooks"],
    (
        "a hook that does nothing and says yes is believed",
        "hook.py",
        "            if now and (bool(how) if wanted is None else how == wanted):\n",
        "            if now and not problem:\n",
    ),
    (
        "a server whose hook does not tell its sessions carries none",
        "hook.py",
        '    if "sessions" not in fields.names():\n',
        "    if False:\n",
    ),
    (
        "a server whose hook does not say whether it is up is down, and not an error",
        "hook.py",
        '    if "up" not in fields.names():\n',
        "    if False:\n",
    ),
    (
        "what a lost answer had done is taken for failed",
        "hook.py",
        '            problem = f" ({error})"\n',
        "            raise\n",
    ),
    (
        "what a hanging program started changes a server later",
        "drivers/command.py",
        "                os.killpg(process.pid, signal.SIGKILL)\n",
        "                process.kill()\n",
    ),
    (
        "a failing program is believed",
        "drivers/command.py",
        "        if process.returncode:\n",
        "        if False:\n",
    ),
)
