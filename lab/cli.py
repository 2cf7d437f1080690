# SPDX-License-Identifier: Apache-2.0
"""The `edgetune` command: this pack without a StackStorm, and a PoP to practise on.

Exit status: 0 succeeded, 1 refused by edgetune, 2 wrong usage or input, 3 something failed, 128 and
the number of the signal that canceled it (129 SIGHUP, 130 Ctrl-C, 143 SIGTERM).

Environment: EDGETUNE_HOME (default: .edgetune in the checkout) is the directory of state,
EDGETUNE_CONFIG (default: edgetune.yaml in there) the pack's configuration, EDGETUNE_PACK (default:
the checkout) the pack's directory. NO_COLOR asks for no colour.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from edgetune import __version__
from edgetune.base.durations import DAY, read_duration, roughly
from edgetune.base.errors import EdgetuneError
from lab.completion import SHELLS, completion
from lab.lab_commands import add_lab_commands, enter_lab
from lab.runner import Engine, Execution, MetadataError, Pack, ParameterError
from lab.runner.action_process import COMMANDS
from lab.runner.display import TaskList, errors_of, text_of
from lab.runner.ending import (
    exit_status,
    help_command,
    next_steps,
    problem_of,
    status_for,
)
from lab.runner.help import action_help, action_list
from lab.runner.inbox import ServedError
from lab.runner.interruption import Signals, forget_runs, tell_left
from lab.runner.metadata import load_config, load_yaml
from lab.runner.parameters import from_words
from lab.runner.progress import Progress, rollouts_of
from lab.runner.runs import Run, ended_runs
from lab.runner.screen import BAD, Screen, fold
from lab.runner.story import Story, StoryTeller
from lab.runner.watch import EVERY, Watch, columns_of, status_teller
from lab.usage import UsageError, config_file, home, pack

__all__ = ["main"]

_OF_INVENTORY = {
    "diff": "say how PoPs differ from what was read for the last plan",
    "accept": "take PoPs as the inventory has them now, whatever is gone",
}


class Parser(argparse.ArgumentParser):
    """Complains as everything else here does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _options(words)
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        return _refuse(str(error), error.next, "--json" in words, error.reason)
    except (MetadataError, ParameterError) as error:
        return _refuse(str(error), "edgetune run", "--json" in words)
    except KeyboardInterrupt:  # before or after what handles signals itself
        return 128 + signal.SIGINT
    return code


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options, rest = parser.parse_known_args(words)
    if rest and not (hasattr(options, "words") and all(_is_assignment(word) for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if hasattr(options, "words"):
        options.words += rest
    return options


def _refuse(message: str, next: str, as_json: bool, reason: str = "usage") -> int:
    """Say why nothing was run, and what to type."""
    if as_json:
        print(json.dumps({"error": message, "reason": reason, "next": next}, indent=2))
    else:
        screen = Screen(sys.stderr)
        screen.whole(f"edgetune: {message}", BAD)
        _tell({"next": next}, screen)
    return status_for(reason)


def _tell(commands: Mapping[str, str], screen: Screen) -> None:
    """Commands to type, whole: one that does not fit beside its name stands below it."""
    for what, command in commands.items():
        line = f"  {what + ':':<11} {command}"
        short = len(line) <= screen.width
        screen.command(line if short else f"  {what}:\n  {command}")


def _is_assignment(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="edgetune", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"edgetune {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="run an action or workflow, as `st2 run` does", add_help=False
    )
    run.add_argument(
        "action", nargs="?", help="name or ref; without it, those of people are listed"
    )
    run.add_argument("-h", "--help", action="store_true", help="show this, or what ACTION takes")
    run.add_argument("--all", action="store_true", help="list steps of workflows and rules, too")
    _add_run_options(run)
    run.set_defaults(parser=run)
    _add_status(commands.add_parser("status", help="show the rollouts, what needs you first"))
    doctor = commands.add_parser("doctor", help="say what speaks against a rollout on a PoP")
    doctor.add_argument("pop", metavar="POP", help="its name in the inventory")
    _add_run_options(doctor)
    doctor.set_defaults(action="doctor_pop", command=_about_pop)
    _add_inventory_commands(commands.add_parser("inventory", help="compare it with the last plan"))
    _add_serve_commands(commands)
    add_lab_commands(commands.add_parser("lab", help="a PoP to practise on"))
    complete = commands.add_parser("completion", help="print what completes words in a shell")
    complete.add_argument("shell", choices=SHELLS)
    complete.set_defaults(command=_completion)
    return parser


def _add_run_options(
    parser: argparse.ArgumentParser,
    word: str = "KEY=VALUE",
    means: str = "parameters of the action",
) -> None:
    # Without a default argparse calls it required where something else is missing.
    parser.add_argument("words", nargs="*", default=[], metavar=word, help=means)
    parser.add_argument("--params-file", type=Path, metavar="FILE", help="the same as YAML or JSON")
    parser.add_argument("--json", action="store_true", help="print nothing but a JSON document")
    parser.add_argument("--verbose", action="store_true", help="show each task as it ends")
    parser.set_defaults(command=_run, tells_ended_runs=False, help=False)


def _add_status(status: argparse.ArgumentParser) -> None:
    status.add_argument("--all", action="store_true", help="show those that have ended, too")
    fleet = "show each PoP, and what stands on it since when, with which effect"
    status.add_argument("--fleet", action="store_true", help=fleet)
    watch = f"show them anew each {EVERY}s, until Ctrl-C"
    status.add_argument("--watch", action="store_true", help=watch)
    _add_run_options(status, "[ROLLOUT|POP|KEY=VALUE]", "one in full; parameters of rollout_status")
    status.set_defaults(action="rollout_status", command=_status, tells_ended_runs=True)


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
    serve.add_argument(
        "--metrics",
        type=_address,
        metavar="[ADDRESS:]PORT",
        help="answer Prometheus there at /metrics, on the loopback unless an address is given",
    )
    serve.add_argument("--verbose", action="store_true", help="show every trigger and execution")
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


def _address(text: str) -> Any:
    serve: Any = import_module("lab.serve")
    try:
        return serve.read_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(options: argparse.Namespace) -> int:
    known = pack()
    if options.help or options.action is None:
        return _help(known, options)
    config, given = _asked(known, options)
    try:
        return _request(known, config, options, given)
    except ParameterError as error:
        raise UsageError(str(error), help_command(known.action(options.action))) from error


def _asked(known: Pack, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration, and the parameters that were given."""
    action = known.action(options.action)
    try:
        given = load_yaml(options.params_file) if options.params_file else {}
        given.update(from_words(action, options.words))
    except ParameterError as error:
        raise UsageError(str(error), help_command(action)) from error
    config = _config(known)
    enter_lab(config, action.name)
    if options.tells_ended_runs:
        given.setdefault("ended", _ended_ids())
    return config, given


def _ended_ids() -> list[str]:
    return [id for ids in ended_runs(home()).values() for id in ids]


def _status(options: argparse.Namespace) -> int:
    named = [word for word in options.words if not _is_assignment(word)]
    if len(named) > 1:
        raise UsageError(f"one rollout or PoP, not {' and '.join(named)}", "edgetune status")
    kept = [word for word in options.words if _is_assignment(word)]
    options.words = [*(f"rollout={word}" for word in named), *kept]
    options.words += ["with_ended=true"] if options.all else []
    options.words += ["fleet=true"] if options.fleet else []
    if options.watch:
        return _watch(options)
    screen = Screen(sys.stdout)
    if screen.is_terminal and not options.json and not any(w.startswith("columns=") for w in kept):
        options.words.append(f"columns={columns_of(screen)}")
    return _run(options)


def _watch(options: argparse.Namespace) -> int:
    """In this process: nothing but records is read."""
    if options.json:
        raise UsageError("--watch is for people, --json for programs", "edgetune status --help")
    known = pack()
    config, given = _asked(known, options)
    wrong = help_command(known.action(options.action))
    os.environ.update(COMMANDS)
    try:
        Engine(known, config, home()).request(options.action, given)
        Watch(Screen(sys.stdout), status_teller(config, given, _ended_ids)).run()
    except ParameterError as error:
        raise UsageError(str(error), wrong) from error
    except EdgetuneError as error:
        Screen(sys.stderr).whole(f"edgetune: {error}", BAD)
        _tell({"next": wrong}, Screen(sys.stderr))
        return status_for(error.reason)
    return 0


def _help(known: Pack, options: argparse.Namespace) -> int:
    if options.action:
        print(action_help(known.action(options.action)))
    else:
        print(options.parser.format_help() if options.help else action_list(known, options.all))
    return 0


def _request(
    known: Pack, config: dict[str, Any], options: argparse.Namespace, given: dict[str, Any]
) -> int:
    screen = Screen(sys.stderr)
    stories = StoryTeller(config)
    progress = Progress(screen, stories.open)
    try:
        run = Run(home(), TaskList(screen) if options.verbose else progress)
    except OSError as error:
        raise UsageError(f"{home() / 'runs'}: {error.strerror}") from error
    keep = True  # unless all is said and nothing is left
    try:
        with Signals(screen, run) as signals:
            engine = Engine(known, config, home(), run)
            execution = engine.request(options.action, given)
            signals.execute(engine, execution)
            progress.close()
            _print(execution, options)
            sys.stdout.flush()
            story = stories.open(next(rollouts_of(execution), ""))
            _tell_end(execution, story, screen, options.verbose)
            left = tell_left(Engine(known, config, home()), execution, screen, signals)
            if not left:
                wrong = problem_of(execution, None).startswith("configuration: ")
                edit = {"next": shlex.join(["vi", str(config_file())])}
                _tell(edit if wrong else next_steps(known, execution, given, story), screen)
            if not run.is_terminal:
                run.write(left)
            if options.tells_ended_runs:
                forget_runs(home(), execution)
            keep = bool(left)
    finally:
        progress.close()
        run.close(keep)
    return 128 + signals.first if execution.status == "canceled" else exit_status(execution)


def _add_inventory_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, means in _OF_INVENTORY.items():
        command = commands.add_parser(name, help=means)
        command.add_argument("pop", metavar="POP", nargs="?", help="one PoP; without it all")
        _add_run_options(command)
        command.set_defaults(action=f"{name}_inventory", command=_about_pop)


def _about_pop(options: argparse.Namespace) -> int:
    if options.pop:
        named = options.pop if _is_assignment(options.pop) else f"pop={options.pop}"
        options.words.insert(0, named)
    return _run(options)


def _config(pack: Pack) -> dict[str, Any]:
    file = config_file()
    if not file.exists():
        raise UsageError(
            f"no configuration: {file} does not exist; build a lab, or set EDGETUNE_CONFIG",
            "edgetune lab up",
        )
    return load_config(pack, file)


def _print(execution: Execution, options: argparse.Namespace) -> None:
    """The result on standard output; a terminal gets no line that it would break."""
    if options.json:
        print(json.dumps(execution.document(), indent=2))
        return
    text, screen = text_of(execution, options.verbose), Screen(sys.stdout)
    if not text:
        return
    if screen.is_terminal:
        text = fold(text, screen.width)
    print(screen.urgent(text) if options.tells_ended_runs else text)


def _tell_end(execution: Execution, story: Story | None, screen: Screen, verbose: bool) -> None:
    """What was wrong, and where the rollout stands."""
    failed = execution.status not in ("succeeded", "canceled")
    for error in errors_of(execution) if failed and verbose else ():
        screen.whole(f"edgetune: {error}", BAD)
    problem = problem_of(execution, story)
    if problem:
        screen.whole(f"edgetune: {problem}", BAD)
    # What a canceled run leaves is told by hosts and commands.
    if story and execution.action.runner == "orquesta" and execution.status != "canceled":
        screen.whole(f"{story.summary} ({roughly(round(execution.seconds))})")


def _serve(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    known = pack()
    book = serve.RuleBook(known)
    names = [name.strip() for name in options.enable.split(",") if name.strip()]
    always = book.rules if names == ["all"] else [book.rule(name).name for name in names]
    config = _config(known)
    enter_lab(config)
    try:
        switches = serve.Switches(home(), always)
        ways = {"every": options.every, "verbose": options.verbose, "metrics": options.metrics}
        serve.serve(known, config, home(), switches, sys.stdout, **ways)
    except ServedError:
        raise UsageError(f"`edgetune serve` runs already on {home()}", "edgetune status") from None
    return 0


def _rule_list(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    switches = serve.Switches(home())
    for rule in serve.RuleBook(pack()).rules.values():
        state = "enabled" if switches.is_on(rule) else "disabled"
        trigger, action = (ref.rpartition(".")[2] for ref in (rule.trigger, rule.action))
        print(f"{rule.name:19} {state:9} {trigger} -> {action}")
    return 0


def _rule_switch(options: argparse.Namespace) -> int:
    serve: Any = import_module("lab.serve")
    book, switches = serve.RuleBook(pack()), serve.Switches(home())
    for rule in [book.rule(name) for name in options.rules]:
        switches.set(rule, options.enabled)
    return 0


def _completion(options: argparse.Namespace) -> int:
    print(completion(options.shell, pack(), _parser()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
