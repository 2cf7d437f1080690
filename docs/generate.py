# SPDX-License-Identifier: Apache-2.0
"""Writes the tables in README.md, and all of docs/tunings.md and docs/bmc-machines.md.

They come from the pack's YAML, and from what the client makes of recorded machines.

python docs/generate.py            write what has changed
python docs/generate.py --check    write nothing; exit 1 and name each file that is out of date
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120  # of Markdown, but for tables
sys.path[:0] = [str(ROOT / "lib"), str(ROOT)]

from edgetune.errors import InputError  # noqa: E402
from edgetune.files import load_yaml  # noqa: E402
from edgetune.hosts.agent.kinds import KINDS as AGENT_KINDS  # noqa: E402
from edgetune.kinds import KINDS  # noqa: E402
from edgetune.tuning import Guard, Setting, Tuning, load_tuning  # noqa: E402
from tests.recorded import NAMES, abilities  # noqa: E402

Document = dict[str, Any]

KINDS_HEAD = """## Kinds of settings

In the order in which a host is changed; it is taken back in the reverse order. `nic` in an
expression stands for the facts of the setting's interface, and the interface `"*"` for each one
that is up. An expression is Jinja without loops, calls, powers and variables of its own; it
multiplies numbers alone, and its filters are those of `lib/edgetune/expressions.py`. `only: raise`
(or `lower`) keeps what is there when it is more (or less); `optional: true` leaves a setting out
where a host does not support it.
"""

TUNINGS_HEAD = """# Tunings

The catalogue in `tunings/`. Written by `python docs/generate.py`; edit the YAML instead.

Every rollout has one more guard, of the share of the work: test hosts may not lose more than
5 % of their `packets` against control hosts over the soak. A tuning that moves packets on purpose
names `packets` with a margin of its own.
"""

MACHINES_HEAD = """# What can be done with which machine

What edgetune makes of machines whose BMCs others recorded. Each is a file in
`tests/fixtures/redfish/machines`; the README beside that folder says where it is from, and what
was left out. Written by `python docs/generate.py`, with the code that asks a BMC. Firmware differs:
one machine says nothing for sure about others of its maker.

* A machine and its BMC are called what the BMC calls them, with the versions of BIOS and firmware.
* BIOS shown: whether its attributes can be read, to plan and to see drift.
* BIOS set: whether a plan would give any of the recorded attributes another of its values; if not,
  what it says of the last. Nothing is set without a registry of what may be.
* In force by: a `job`, which is waited for and taken back; `apply time`, the word that settings are
  for the next boot; or `plain`, where they always are.
* Restarts: the ways in which the BMC restarts the machine, the gentlest first.
  `GracefulShutdown` is followed by `On`. A host that still answers is forced to with
  `force_restart` only.
* Snoop modes: what `bios.snoop_mode` can be.
* Boot: how far the machine had come, as its BMC told. `(POST)`: it counts as being in POST, in
  which it is left alone; some BMCs tell of nothing later.
* Events: whether the newest of its log are told of a machine that does not come back; `empty`, if
  there was none.
"""


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write or check the pages below ``root``; returns the exit status."""
    try:
        pages = {
            "README.md": readme(root),
            "docs/tunings.md": tunings_page(root),
            "docs/bmc-machines.md": machines_page(),
        }
    except (InputError, OSError) as error:
        print(f"docs/generate.py: {error}", file=sys.stderr)
        return 1
    stale = [name for name, text in pages.items() if _text_of(root / name) != text]
    if "--check" in arguments:
        for name in stale:
            print(f"{name}: out of date, run python docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (root / name).write_text(pages[name], encoding="utf-8")
        print(f"{name}: written")
    return 0


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def readme(root: Path) -> str:
    """README.md with its generated parts made anew; InputError names a marker that is missing."""
    text = (root / "README.md").read_text(encoding="utf-8")
    for name, section in SECTIONS.items():
        text = replace_section(text, name, section(root))
    return text


def replace_section(text: str, name: str, content: str) -> str:
    """The text with what stands between the markers of one section replaced."""
    begin, end = (f"<!-- {word} GENERATED {name} -->\n" for word in ("BEGIN", "END"))
    for marker in (begin, end):
        if text.count(marker) != 1:
            raise InputError("README.md", None, f"must have one line {marker.strip()}")
    before, _, rest = text.partition(begin)
    if end not in rest:
        raise InputError("README.md", None, f"{end.strip()} stands before its beginning")
    return f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"


def table(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; ``headings`` are separated by commas."""
    columns = headings.split(", ")
    lines = [columns, ["---"] * len(columns), *([cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text on one line in which no pipe ends the cell, not even one in code."""
    return " ".join(text.split()).replace("|", "\\|")


def code(value: Any) -> str:
    """A value as YAML would have it, as code."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str) and not value:
        return '`""`'
    return f"`{value}`"


def documents(root: Path, folder: str) -> list[Document]:
    """The YAML files of one folder, by name."""
    return [load_yaml(path) for path in sorted((root / folder).glob("*.yaml"))]


def yes(value: Any) -> str:
    return "yes" if value else "no"


def parameter_table(heading: str, parameters: Document) -> str:
    """What each parameter or option is; those of the runner, which have no type, are left out."""
    rows = [
        (
            code(name),
            type_of(item),
            yes(item.get("required")),
            code(item["default"]) if "default" in item else "",
            item["description"],
        )
        for name, item in parameters.items()
        if "type" in item
    ]
    return table(f"{heading}, type, required, default, meaning", rows)


def type_of(parameter: Document) -> str:
    """The type with what limits it, such as `number, 0.05 to 0.95`."""
    kind = str(parameter["type"])
    below = parameter.get("items", {}).get("type")
    if below:
        kind += f" of {below}s"
    if "enum" in parameter:
        kind += ": " + ", ".join(code(value) for value in parameter["enum"])
    least, most = parameter.get("minimum"), parameter.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    if least is not None or most is not None:
        return f"{kind}, " + (f"at least {least}" if most is None else f"at most {most}")
    return kind


def parameter_tables(actions: Iterable[Document]) -> list[str]:
    """One table under a heading for all actions with the same parameters."""
    names_by_table: dict[str, list[str]] = {}
    for action in actions:
        if any("type" in item for item in action["parameters"].values()):
            names = names_by_table.setdefault(
                parameter_table("parameter", action["parameters"]), []
            )
            names.append(action["name"])
    return [
        f"#### {', '.join(code(name) for name in names)}\n\n{text}"
        for text, names in names_by_table.items()
    ]


def actions_section(root: Path) -> str:
    actions = [item for item in documents(root, "actions") if item["runner_type"] != "orquesta"]
    rows = [(code(item["name"]), item["description"], timeout_of(item)) for item in actions]
    summary = table("action, what it does, timeout", rows)
    return "\n\n".join([summary, *parameter_tables(actions)])


def timeout_of(action: Document) -> str:
    """How long it may run; what only announces takes no time."""
    given = action["parameters"].get("timeout")
    return f"{given['default']} s" if given else ""


def workflows_section(root: Path) -> str:
    flows = [item for item in documents(root, "actions") if item["runner_type"] == "orquesta"]
    summary = table(
        "workflow, what it does", [(code(item["name"]), item["description"]) for item in flows]
    )
    return "\n\n".join([summary, *parameter_tables(flows)])


def configuration_section(root: Path) -> str:
    return parameter_table("option", load_yaml(root / "config.schema.yaml"))


def rules_section(root: Path) -> str:
    rows = [
        (
            code(rule["name"]),
            " ".join([code(rule["trigger"]["type"]), pairs(rule["trigger"].get("parameters", {}))]),
            code(rule["action"]["ref"]),
            yes(rule["enabled"]),
            rule["description"],
        )
        for rule in documents(root, "rules")
    ]
    return table("rule, trigger, action, enabled, what it does", rows)


def pairs(values: Document) -> str:
    """Such as `threshold 1, action cancel`."""
    return ", ".join(
        f"{key} {', '.join(value) if isinstance(value, list) else value}"
        for key, value in values.items()
    )


def sensors_triggers_section(root: Path) -> str:
    sensors = [
        (
            code(Path(sensor["entry_point"]).stem),
            f"{sensor['poll_interval']} s" if "poll_interval" in sensor else "",
            yes(sensor["enabled"]),
            sensor["description"],
        )
        for sensor in documents(root, "sensors")
    ]
    triggers = [
        (
            code(f"edgetune.{trigger['name']}"),
            ", ".join(code(name) for name in trigger["payload_schema"]["properties"]),
            trigger["description"],
        )
        for trigger in documents(root, "triggers")
    ]
    return "\n\n".join(
        [
            table("sensor, every, enabled, what it does", sensors),
            table("trigger, payload, when", triggers),
        ]
    )


def policies_section(root: Path) -> str:
    rows = [
        (
            code(policy["name"]),
            f"{code(policy['policy_type'])} {pairs(policy['parameters'])}",
            code(policy["resource_ref"]),
            policy["description"],
        )
        for policy in documents(root, "policies")
    ]
    return table("policy, type, action, what it does", rows)


def aliases_section(root: Path) -> str:
    rows = [
        (
            ", ".join(code(item["display"]) for item in alias["formats"]),
            code(alias["action_ref"]),
            alias["description"],
        )
        for alias in sorted(documents(root, "aliases"), key=changes_something)
    ]
    return table("command, action, what it does", rows)


def changes_something(alias: Document) -> bool:
    """Commands that only read are listed first."""
    return not str(alias["description"]).startswith("Reads only")


def tunings(root: Path) -> list[Tuning]:
    """The catalogue, by name."""
    return [load_tuning(path) for path in sorted((root / "tunings").glob("*.yaml"))]


def tunings_section(root: Path) -> str:
    rows = [
        (
            code(tuning.name),
            intent_of(tuning),
            tuning.disruption,
            ", ".join(code(setting.id) for setting in tuning.settings),
            tuning.summary,
        )
        for tuning in tunings(root)
    ]
    return table("tuning, intent, disruption, settings, what it does", rows)


def tunings_page(root: Path) -> str:
    """All of docs/tunings.md."""
    parts = [tuning_part(tuning) for tuning in tunings(root)]
    return "\n".join([TUNINGS_HEAD, *parts, KINDS_HEAD, kinds_table(), ""])


def kinds_table() -> str:
    """Every kind of setting in the order of application."""
    rows = [
        (
            code(name),
            ", ".join(code(field) for field in KINDS[name].target) or "nothing",
            {"": "text"}.get(KINDS[name].parts, f"named {KINDS[name].parts}"),
            KINDS[name].disruption,
            KINDS[name].summary or (AGENT_KINDS[name].__doc__ or "").partition("\n\n")[0],
        )
        for name in [*(name for name in KINDS if KINDS[name].by_bmc), *AGENT_KINDS]
    ]
    return table("kind, set on, value, asks for at least, what it is", rows)


def machines_page() -> str:
    """All of docs/bmc-machines.md."""
    headings = (
        "file, machine, BMC, BIOS shown, BIOS set, in force by, restarts, snoop modes, boot, events"
    )
    rows = [(code(name), *astuple(abilities(name))) for name in NAMES]
    return f"{MACHINES_HEAD}\n{table(headings, rows)}\n"


def tuning_part(tuning: Tuning) -> str:
    """One tuning: what it is for, and each value with its reason and source."""
    told = ", ".join(map(guard_of, tuning.guards)) or "none"
    guards = textwrap.fill(
        f"* Guards, which may not get worse: {told}", WIDTH, subsequent_indent="  "
    )
    rows = [
        (code(setting.id), value_of(setting), effect_of(setting), setting.why, setting.source)
        for setting in tuning.settings
    ]
    return f"""## {tuning.name} {tuning.version}

{tuning.summary}

* For: {audience_of(tuning)}
* Intent: {intent_of(tuning)}
{guards}
* Disruption: {tuning.disruption}

{table("setting, value, asks for, why, source", rows)}
"""


def intent_of(tuning: Tuning) -> str:
    words = {"improve": "improve", "no_harm": "no harm to"}[tuning.intent.goal]
    return f"{words} {code(tuning.intent.metric)}{beyond(tuning.intent.margin)}"


def guard_of(guard: Guard) -> str:
    absent = ", where it is measured" if guard.optional else ""
    return f"{code(guard.metric)}{beyond(guard.margin)}{absent}"


def audience_of(tuning: Tuning) -> str:
    """Which hosts a tuning is for."""
    only = tuning.applies_to
    words = {
        "system": " or ".join(only.os),
        "kernel": f"{only.kernel} or newer" if only.kernel else "",
        "driver": " or ".join(code(name) for name in only.drivers),
        "CPU": " or ".join(only.cpu_vendors),
        "CPUs": f"at least {only.cpus}" if only.cpus else "",
        "NUMA nodes": f"at least {only.numa_nodes}" if only.numa_nodes else "",
    }
    return ", ".join(f"{name} {text}" for name, text in words.items() if text) or "every host"


def beyond(margin: float) -> str:
    """A margin, which is a share, in percent."""
    return f" by more than {margin * 100:g} %" if margin else ""


def value_of(setting: Setting) -> str:
    if isinstance(setting.value, str):
        shown = code(setting.value)
    else:
        shown = code(", ".join(f"{key}: {part}" for key, part in setting.value.items()))
    if setting.only:
        shown += f" (only {setting.only})"
    return f"{shown} (where supported)" if setting.optional else shown


def effect_of(setting: Setting) -> str:
    return f"{setting.disruption} of {setting.restart}" if setting.restart else setting.disruption


SECTIONS: dict[str, Callable[[Path], str]] = {
    "actions": actions_section,
    "workflows": workflows_section,
    "configuration": configuration_section,
    "rules": rules_section,
    "sensors_triggers": sensors_triggers_section,
    "policies": policies_section,
    "aliases": aliases_section,
    "tunings": tunings_section,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
