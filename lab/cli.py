# SPDX-License-Identifier: Apache-2.0
"""The `edgetune` command: this pack without a StackStorm, and a PoP to practise on.

Exit status: 0 succeeded, 1 failed or timed out, 2 wrong usage or input, 128 and the number of the
signal that canceled it (129 SIGHUP, 130 Ctrl-C, 143 SIGTERM).

Environment: EDGETUNE_HOME (default: .edgetune in the checkout) is the directory of state,
EDGETUNE_CONFIG (default: edgetune.yaml in there) the pack's configuration, EDGETUNE_PACK (default:
the checkout) the pack's directory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from edgetune.durations import DAY, read_duration
from lab import CHECKOUT
from lab.runner import Engine, Execution, MetadataError, Pack, ParameterError
from lab.runner.display import TaskList, errors_of, text_of
from lab.runner.inbox import ServedError
from lab.runner.interruption import Signals, forget_runs, tell_left
from lab.runner.metadata import load_config, load_yaml
from lab.runner.parameters import from_words
from lab.runner.runs import Run, ended_runs

__all__ = ["main"]


class UsageError(Exception):
    """The command cannot be carried out; the message is one line that says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and not (hasattr(options, "words") and all(_is_assignment(word) for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if hasattr(options, "words"):
        options.words += rest
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UsageError, MetadataError, ParameterError) as error:
        print(f"edgetune: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before or after what handles signals itself
        return 128 + signal.SIGINT
    return code


def _is_assignment(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="edgetune", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an action or workflow, as `st2 run` does")
    run.add_argument("action", nargs="?", help="name or ref; without it, all are listed")
    _add_run_options(run)
    status = commands.add_parser("status", help="show the rollouts")
    _add_run_options(status)
    status.set_defaults(action="rollout_status", tells_ended_runs=True)
    doctor = commands.add_parser("doctor", help="say what speaks against a rollout on a PoP")
    doctor.add_argument("pop", metavar="POP", help="its name in the inventory")
    _add_run_options(doctor)
    doctor.set_defaults(action="doctor_pop", command=_doctor)
    _add_serve_commands(commands)
    _add_lab_commands(commands.add_parser("lab", help="a PoP to practise on"))
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="parameters of the action")
    parser.add_argument("--params-file", type=Path, metavar="FILE", help="the same as YAML or JSON")
    parser.add_argument("--json", action="store_true", help="print nothing but a JSON document")
    parser.set_defaults(command=_run, tells_ended_runs=False)


def _add_serve_commands(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run sensors, timers and rules, until Ctrl-C")
    serve.add_argument(
        "--enable", default="", metavar="RULE,..|all", help="rules that are on this time"
    )
    serve.add_argument(
        "--every",
        type=_whole_seconds,
        metavar="5s",
        help="let timers of --enable tick and sensors poll at least so often, to watch a lab",
    )
    serve.set_defaults(command=_serve)
    rule = commands.add_parser("rule", help="list, enable or disable rules of `serve`")
    verbs = rule.add_subparsers(required=True, metavar="COMMAND")
    verbs.add_parser("list", help="all rules").set_defaults(command=_rule_list)
    for verb in ("enable", "disable"):
        switch = verbs.add_parser(verb, help=f"{verb} rules, also of a server that runs")
        switch.add_argument("rules", nargs="+", metavar="RULE")
        switch.set_defaults(command=_rule_switch, enabled=verb == "enable")


def _whole_seconds(text: str) -> int:
    try:
        seconds = read_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= seconds <= DAY or seconds != int(seconds):
        raise argparse.ArgumentTypeError(f"whole seconds from 1s to 1d, not {text}")
    return int(seconds)


def _add_lab_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="build the PoP and put it under load")
    up.add_argument("--hosts", type=int, default=8, metavar="N", help="default: 8")
    up.add_argument(
        "--pops", type=int, default=1, metavar="N", help="that share the hosts; default: 1"
    )
    up.add_argument("--no-load", action="store_true", help="without a client that makes requests")
    up.add_argument("--simulated", action="store_true", help="without root: hosts are processes")
    up.add_argument(
        "--post-seconds", type=float, default=0.0, metavar="N", help="of firmware in each reboot"
    )
    up.set_defaults(command=_lab_up)
    commands.add_parser("down", help="take it down").set_defaults(command=_lab_down)
    commands.add_parser("status", help="show it").set_defaults(command=_lab_status)
    execute = commands.add_parser("exec", help="run a command where the PoP can be reached")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    execute.set_defaults(command=_lab_exec)
    _add_fault_commands(commands)


def _add_fault_commands(commands: Any) -> None:
    console = commands.add_parser("console", help="run a command on a host, network or not")
    console.add_argument("host", metavar="HOST")
    console.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    console.set_defaults(command=_lab_console)
    fault = commands.add_parser("fault", help="break something: a cable, disk, host, program, BMC")
    fault.add_argument("fault", metavar="FAULT", help="one that does not exist lists them")
    fault.add_argument("target", metavar="TARGET", help="a host, a port, or what to do")
    fault.set_defaults(command=_lab_fault)
    heal = commands.add_parser("heal", help="undo all that was broken")
    heal.set_defaults(command=_lab_heal)


def _home() -> Path:
    return Path(os.environ.get("EDGETUNE_HOME") or CHECKOUT / ".edgetune").resolve()


def _pack() -> Pack:
    return Pack(Path(os.environ.get("EDGETUNE_PACK") or CHECKOUT))


def _run(options: argparse.Namespace) -> int:
    pack = _pack()
    if options.action is None:
        for ref, listed in pack.actions.items():
            print(f"{ref:36} {listed.description}")
        return 0
    action = pack.action(options.action)
    given = load_yaml(options.params_file) if options.params_file else {}
    given.update(from_words(action, options.words))
    config = _config(pack)
    _enter_lab(config)
    if options.tells_ended_runs:
        given.setdefault("ended", [id for ids in ended_runs(_home()).values() for id in ids])
    return _request(pack, config, options, given)


def _request(
    pack: Pack, config: dict[str, Any], options: argparse.Namespace, given: dict[str, Any]
) -> int:
    tasks = TaskList(sys.stderr)
    try:
        run = Run(_home(), tasks)
    except OSError as error:
        raise UsageError(f"{_home() / 'runs'}: {error.strerror}") from error
    keep = True  # unless all is said and nothing is left
    try:
        with Signals(tasks, run) as signals:
            engine = Engine(pack, config, _home(), run)
            execution = engine.request(options.action, given)
            tasks.note(f"{execution.action.ref} {execution.id}")
            signals.execute(engine, execution)
            _print(execution, options.json)
            sys.stdout.flush()
            left = tell_left(Engine(pack, config, _home()), execution, tasks, signals)
            if not run.is_terminal:
                run.write(left)
            if options.tells_ended_runs:
                forget_runs(_home(), execution)
            keep = bool(left)
    finally:
        run.close(keep)
    if execution.status == "canceled":
        return 128 + signals.first
    return 0 if execution.status == "succeeded" else 1


def _doctor(options: argparse.Namespace) -> int:
    named = options.pop if _is_assignment(options.pop) else f"pop={options.pop}"
    options.words.insert(0, named)
    return _run(options)


def _config(pack: Pack) -> dict[str, Any]:
    file = Path(os.environ.get("EDGETUNE_CONFIG") or _home() / "edgetune.yaml")
    if not file.exists():
        raise UsageError(
            f"no configuration: {file} does not exist;"
            " build a lab with `edgetune lab up`, or set EDGETUNE_CONFIG"
        )
    return load_config(pack, file)


def _print(execution: Execution, as_json: bool) -> None:
    done = f"{execution.status} after {execution.seconds:.1f} s"
    print(f"{execution.action.ref} {execution.id} {done}", file=sys.stderr)
    if execution.status != "succeeded":
        for error in errors_of(execution):
            print(f"error: {error}", file=sys.stderr)
    text = json.dumps(execution.document(), indent=2) if as_json else text_of(execution)
    if text:
        print(text)


def _serve(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    pack = _pack()
    book = serve.RuleBook(pack)
    names = [name.strip() for name in options.enable.split(",") if name.strip()]
    always = book.rules if names == ["all"] else [book.rule(name).name for name in names]
    config = _config(pack)
    _enter_lab(config)
    try:
        switches = serve.Switches(_home(), always)
        serve.serve(pack, config, _home(), switches, sys.stdout, options.every)
    except ServedError:
        raise UsageError(f"`edgetune serve` runs already on {_home()}") from None
    return 0


def _rule_list(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    switches = serve.Switches(_home())
    for rule in serve.RuleBook(_pack()).rules.values():
        state = "enabled" if switches.is_on(rule) else "disabled"
        print(f"{rule.name:24} {state:9} {rule.trigger} -> {rule.action}")
    return 0


def _rule_switch(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    book, switches = serve.RuleBook(_pack()), serve.Switches(_home())
    for rule in [book.rule(name) for name in options.rules]:
        switches.set(rule, options.enabled)
    return 0


def _enter_lab(config: dict[str, Any]) -> None:
    """Where a lab of namespaces is up, its hosts are reached only from inside of it.

    Where it is not up any more, its addresses are those of strangers.
    """
    if _lab_kind() == "namespaces":
        _lab("namespaces", "enter_controller")
    elif _lab_kind() is None and config.get("inventory") == str(_home() / "lab/inventory.yaml"):
        raise UsageError("the lab of this configuration is not up; `edgetune lab up` builds one")


def _lab_kind() -> str | None:
    """`namespaces`, `simulated`, or None when no lab is up."""
    kind = _recorded_kind()
    return kind if kind and _lab(kind, "status") is not None else None


def _recorded_kind() -> str | None:
    """Of the lab that was built last; it may not have survived."""
    file = _home() / "lab" / "state.json"
    if not file.exists():
        return None
    try:
        kind: str = json.loads(file.read_text(encoding="utf-8"))["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: not the state of a lab: {error!r}") from error
    return kind


def _lab(kind: str, function: str, **arguments: Any) -> Any:
    """Call a function of the lab of that kind; what it raises on purpose becomes one line."""
    module = import_module("lab.simulated" if kind == "simulated" else "lab.pop")
    try:
        return getattr(module, function)(_home(), **arguments)
    except getattr(module, "LabError", ()) as error:
        raise UsageError(str(error)) from error


def _lab_up(options: argparse.Namespace) -> int:
    given = {"hosts": options.hosts, "pops": options.pops, "post_seconds": options.post_seconds}
    given["stays"] = True
    if options.simulated:
        _print_lab(_lab("simulated", "up", **given))
        return 0
    missing = import_module("lab.pop").missing_requirements()
    if missing:
        raise UsageError(
            f"a lab of namespaces needs {', '.join(missing)};"
            " without them: `edgetune lab up --simulated`"
        )
    _print_lab(_lab("namespaces", "up", load=not options.no_load, **given))
    return 0


def _lab_down(options: argparse.Namespace) -> int:
    was_up = _lab(_recorded_kind() or "namespaces", "down")
    print("the lab is down" if was_up else "no lab was up")
    return 0


def _lab_status(options: argparse.Namespace) -> int:
    kind = _lab_kind()
    if kind is None:
        print("no lab is up")
        return 1
    _print_lab(_lab(kind, "status"))
    return 0


def _print_lab(state: dict[str, Any]) -> None:
    yaml: Any = import_module("yaml")
    print(yaml.safe_dump(json.loads(json.dumps(state, default=str)), sort_keys=False), end="")


def _lab_exec(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("lab exec needs a command")
    if _lab_kind() is None:
        raise UsageError("no lab is up; build one with `edgetune lab up`")
    _enter_lab({})
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise UsageError(f"{argv[0]}: {error.strerror}") from error


def _lab_console(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("lab console needs a command")
    print(_faulty_lab("console", host=options.host, command=argv), end="")
    return 0


def _lab_fault(options: argparse.Namespace) -> int:
    _faulty_lab("inject", fault=options.fault, target=options.target)
    return 0


def _lab_heal(options: argparse.Namespace) -> int:
    _faulty_lab("heal")
    return 0


def _faulty_lab(function: str, **arguments: Any) -> Any:
    """Only real hosts can be broken."""
    if _lab_kind() != "namespaces":
        raise UsageError("no lab of namespaces is up; build one with `edgetune lab up`")
    return _lab("namespaces", function, **arguments)


if __name__ == "__main__":
    sys.exit(main())
