# SPDX-License-Identifier: Apache-2.0
"""Completion of words in a shell: a small script, made of the parser and the pack's metadata."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lab.runner.help import own_parameters
from lab.runner.metadata import Pack, load_yaml

__all__ = ["SHELLS", "completion"]

SHELLS = ("bash", "zsh")

_BASH = """\
# eval "$(edgetune completion bash)"
_edgetune() {{
  local offered=
  case "${{COMP_WORDS[*]:1:COMP_CWORD-1}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$offered" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  if [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}}
complete -F _edgetune edgetune
"""
_ZSH = """\
# autoload -U compinit && compinit; eval "$(edgetune completion zsh)"
_edgetune() {{
  local offered=
  case "${{(j: :)words[2,CURRENT-1]}}" in
{cases}
  esac
  compadd -S '' -- ${{(M)${{=offered}}:#*=}}
  compadd -- ${{${{=offered}}:#*=}}
}}
compdef _edgetune edgetune
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}


def completion(shell: str, pack: Pack, parser: argparse.ArgumentParser) -> str:
    """The script of one of ``SHELLS``."""
    offers = {**dict(_offers(parser)), **_of_pack(pack)}
    for name in ("status", "doctor", "inventory diff", "inventory accept"):
        action = _parser_of(parser, name).get_default("action")
        offers[name] = [*offers[name], *offers[f"run {action}"]]
    # The first pattern that fits is taken, so the longest stands first.
    cases = [_case(typed, offers[typed]) for typed in sorted(offers, key=len, reverse=True)]
    return _SCRIPTS[shell].format(cases="\n".join(cases))


def _of_pack(pack: Pack) -> dict[str, list[str]]:
    actions = pack.actions.values()
    rules = [str(load_yaml(file)["name"]) for file in sorted((pack.root / "rules").glob("*.yaml"))]
    keys = {f"run {each.name}": [f"{name}=" for name in own_parameters(each)] for each in actions}
    enabling = {f"rule {verb}": rules for verb in ("enable", "disable")}
    return {**keys, **enabling, "run": [each.name for each in actions]}


def _offers(parser: argparse.ArgumentParser, typed: str = "") -> Iterator[tuple[str, list[str]]]:
    """What may follow the words that are typed, of a parser and those below it."""
    words: list[str] = []
    for each in parser._actions:
        words += [option for option in each.option_strings if option.startswith("--")]
        if isinstance(each, argparse._SubParsersAction):
            words += each.choices
            for name, below in each.choices.items():
                yield from _offers(below, f"{typed} {name}".strip())
        elif each.choices:
            words += each.choices
    yield typed, words


def _parser_of(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """That of a command, such as ``status`` or ``inventory diff``."""
    for word in name.split():
        (below,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = below.choices[word]
    return parser


def _case(typed: str, words: list[str]) -> str:
    pattern = f'"{typed}"|"{typed} "*' if typed else '""'
    return f'    {pattern}) offered="{" ".join(words)}" ;;'
