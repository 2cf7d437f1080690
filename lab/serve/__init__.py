# SPDX-License-Identifier: Apache-2.0
"""`edgetune serve`: the pack's sensors, timers and rules in the local runner.

Triggers come from timers, from sensors, and from every execution that ended in this directory of
state, also one that `edgetune run` started elsewhere. Rules turn them into executions. There are
no policies, users or RBAC, no webhooks, inquiries or triggers of the datastore, no `DateTimer`, and
no operators `search`, `td_lt` and `td_gt`; what happens while nobody serves is not made up for.

    rules           the pack's rules and triggers, read and checked; which rules are enabled
    criteria        the operators of criteria
    timers          when an interval or cron timer fires next
    sensors         keeps the process of each sensor running (sensor_process.py is its other end)
    server          triggers in, executions out
    metrics         /metrics for Prometheus
    log             what is printed of that: all of it, or the news
    command         all of it together, until Ctrl-C
"""

from __future__ import annotations

from lab.serve.command import serve
from lab.serve.metrics import read_address
from lab.serve.rules import Rule, RuleBook, Switches

__all__ = ["Rule", "RuleBook", "Switches", "read_address", "serve"]
