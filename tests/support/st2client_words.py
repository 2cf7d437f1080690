# SPDX-License-Identifier: Apache-2.0
"""What StackStorm's client makes of commands; run by the Python of the client's own environment.

Standard input: ``{"actions": {ref: {"parameters", "runner_parameters"}}, "commands": [words]}``
with the words after ``st2``. Standard output, for each command: ``{"parameters": {...}}``, empty
for commands other than ``run``, or ``{"error": text}``.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from st2client.models.action import Action, RunnerType
from st2client.shell import Shell


def understood(parser: Any, actions: dict[str, Any], words: list[str]) -> dict[str, Any]:
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            options = parser.parse_args(words)
        if options.parser != "run":
            return {"parameters": {}}
        own = actions[options.ref_or_id]
        action = Action(ref=options.ref_or_id, parameters=own["parameters"])
        runner = RunnerType(runner_parameters=own["runner_parameters"])
        command = options.func.__self__
        return {"parameters": command._get_action_parameters_from_args(action, runner, options)}
    except SystemExit:
        return {"error": complaint.getvalue().strip().splitlines()[-1]}
    except KeyError as error:
        return {"error": f"there is no action {error}"}
    except ValueError as error:
        return {"error": str(error)}


asked = json.load(sys.stdin)
shell = Shell()
json.dump(
    [understood(shell.parser, asked["actions"], each) for each in asked["commands"]], sys.stdout
)
