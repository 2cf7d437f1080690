# SPDX-License-Identifier: Apache-2.0
"""The local runner: this pack's actions and workflows without a StackStorm.

It reads the same metadata, renders and checks parameters by the same rules, conducts the same
workflows with Orquesta and starts the same actions as processes, with the same results. It exists
to try, to test and to demonstrate. Rules, timers and sensors are served by `lab.serve`. It has no
policies, users, RBAC, inquiries, pause and resume, re-run, or high availability: that is what
StackStorm is for.

    metadata        the pack's files: actions, entry points, configuration
    parameters      what a caller gave: parsed, rendered, cast, checked
    execution       one action or workflow being run: id, status, result, children
    engine          starts an execution according to its runner type; cancels
    action_process  a Python action as a process of its own
    template        the process that these are forked from (wrapper.py is what they do)
    workflow        one conductor loop per workflow; inspection comes before it
    datastore       StackStorm's key-value store, on SQLite
    schemas         JSON Schema of StackStorm's dialect
    inbox           trigger instances on their way to `lab.serve`
    screen          lines on a terminal or in a file: width, colour, one that lives
    story           what became of a rollout and what goes on, from its record
    progress        what a person sees of a run: the stories of its rollouts
    watch           what the status says, again and again
    display         results and errors as text, and the list of all tasks
    ending          exit status, what was wrong, and what may be typed next
    help            actions and their parameters as text
    interruption    signals that end a run early, and what is said of what it leaves
    runs            which runs have ended, however that came
"""

from __future__ import annotations

from lab.runner.engine import Engine
from lab.runner.execution import Execution, Listener
from lab.runner.metadata import MetadataError, Pack
from lab.runner.parameters import ParameterError

__all__ = ["Engine", "Execution", "Listener", "MetadataError", "Pack", "ParameterError"]
