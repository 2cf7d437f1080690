# SPDX-License-Identifier: Apache-2.0
"""Values of tunings that are worked out on each host: Jinja, without what repeats or grows.

An expression has no loops, no calls, no powers and no variables of its own, and multiplies numbers
alone. So it ends soon, and what it makes is not much longer than it and the facts together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.environment import Template
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

MOST_CHARACTERS = 100_000
MOST_MADE = 1 << 20
MOST_NODES = 2_000
MOST_LEVELS = 50
MOST_OF_AN_ARGUMENT = 100
LARGEST = 1 << 64

FILTERS = (
    *("abs", "count", "d", "default", "dictsort", "first", "float", "int", "join", "last"),
    *("length", "list", "lower", "max", "min", "reverse", "round", "sort", "string", "sum"),
    *("trim", "unique", "upper"),
)
_PERMITTED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.CondExpr),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Keyword),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Concat),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
    *(nodes.Neg, nodes.Pos),
)
_FAILURES = (
    *(TemplateError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError),
)
_WORDS: Mapping[type[nodes.Node], str] = {
    nodes.For: "loop",
    nodes.Pow: "power",
    nodes.Assign: "variable of its own",
    nodes.AssignBlock: "variable of its own",
}


class _Bounded(SandboxedEnvironment):
    """Jinja would work out products of constants at once; those intercepted it leaves alone."""

    intercepted_binops = frozenset("*%")

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """A product, or a remainder (which formats texts, if they are no numbers)."""
        for operand in (left, right):
            if not isinstance(operand, (int, float)):
                raise ValueError(f"{operator} is for numbers alone")
            if not -LARGEST <= operand <= LARGEST:
                raise ValueError("a number is too large")
        return super().call_binop(context, operator, left, right)


def check_expression(text: str) -> None:
    """ValueError says what no expression may hold, or what is no Jinja."""
    _compiled(text)


def work_out(text: str, names: Mapping[str, object]) -> str:
    """What a text comes to for a host with these facts; ValueError says why it does not."""
    try:
        made: str = _compiled(text).render(names)
    except _FAILURES as error:
        raise ValueError(str(error)) from None
    if len(made) > MOST_MADE:
        raise ValueError(f"it comes to more than {MOST_MADE} characters")
    return made


@functools.lru_cache(maxsize=1000)
def _compiled(text: str) -> Template:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"a text with an expression has at most {MOST_CHARACTERS} characters")
    environment = _Bounded(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    environment.globals.clear()
    try:
        _check(environment.parse(text))
        return environment.from_string(text)
    except RecursionError:
        raise ValueError("an expression is too long") from None
    except (TemplateError, SyntaxError) as error:
        raise ValueError(str(error)) from None


def _check(template: nodes.Template) -> None:
    for count, (node, level) in enumerate(_all_below(template)):
        if count >= MOST_NODES or level > MOST_LEVELS:
            raise ValueError("an expression is too long")
        if not isinstance(node, _PERMITTED):
            word = _WORDS.get(type(node), type(node).__name__.lower())
            raise ValueError(f"an expression may hold no {word}")
        if isinstance(node, nodes.Filter):
            _check_filter(node)


def _all_below(template: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Every node with its level, without recursion of Python's."""
    rest = [(template, 0)]
    while rest:
        node, level = rest.pop()
        yield node, level
        rest += [(below, level + 1) for below in node.iter_child_nodes()]


def _check_filter(node: nodes.Filter) -> None:
    if node.name not in FILTERS:
        raise ValueError(
            f"an expression may hold no filter {node.name}; known: {', '.join(FILTERS)}"
        )
    if node.dyn_args or node.dyn_kwargs:
        raise ValueError(f"the arguments of {node.name} must be written out")
    given = [*node.args, *(each.value for each in node.kwargs)]
    if node.name not in ("d", "default") and not all(map(_is_small, given)):
        raise ValueError(f"the arguments of {node.name} must be short texts or small numbers")


def _is_small(node: nodes.Expr) -> bool:
    value = node.value if isinstance(node, nodes.Const) else node
    if isinstance(value, str):
        return len(value) <= MOST_OF_AN_ARGUMENT
    return isinstance(value, (int, float)) and abs(value) <= MOST_OF_AN_ARGUMENT
