# SPDX-License-Identifier: Apache-2.0
"""What an attribute may be, and which attributes stand for a snoop mode."""

from __future__ import annotations

from typing import Any

import pytest

from edgetune.net.bmc.payload import BmcError
from edgetune.net.bmc.planning import find_knob
from edgetune.net.bmc.registry import Registry


def entry(name: str, kind: str = "Enumeration", **more: Any) -> dict[str, Any]:
    values = more.pop("values", ["On", "Off"] if kind == "Enumeration" else [])
    listed = [{"ValueName": value, "ValueDisplayName": f"({value})"} for value in values]
    return {"AttributeName": name, "Type": kind, "Value": listed, **more}


def rule(target: str, what: str, value: Any, *terms: dict[str, Any]) -> dict[str, Any]:
    to = {"MapToAttribute": target, "MapToProperty": what, "MapToValue": value}
    return {"Type": "Map", "DependencyFor": target, "Dependency": {"MapFrom": list(terms), **to}}


def term(name: str, condition: str, value: Any, **more: Any) -> dict[str, Any]:
    return {
        "MapFromAttribute": name,
        "MapFromProperty": "CurrentValue",
        "MapFromCondition": condition,
        "MapFromValue": value,
        **more,
    }


def postfix(words: str) -> list[dict[str, Any]]:
    """Conditions on B, and behind some of them the operators that a Supermicro has there."""
    terms: list[dict[str, Any]] = []
    for word in words.split():
        if word.islower():
            terms.append(term("B", "EQU", word))
        else:
            terms[-1]["MapTerms"] = word
    return terms


def registry(*entries: dict[str, Any], rules: Any = ()) -> Registry:
    below = {"Attributes": list(entries), "Dependencies": list(rules)}
    return Registry({"RegistryEntries": below})


@pytest.mark.parametrize(
    ("one", "value", "problem"),
    [
        (entry("A"), "Off", None),
        (entry("A"), "off", "'off' is none of: On, Off"),
        (entry("A"), 1, "'1' is none of: On, Off"),
        (entry("A", "Integer", LowerBound=2, UpperBound=9), 9, None),
        (entry("A", "Integer", LowerBound=2, UpperBound=9), 1, "1 is below 2"),
        (entry("A", "Integer", LowerBound=2, UpperBound=9), 10, "10 is above 9"),
        (entry("A", "Integer", LowerBound=1, ScalarIncrement=4), 9, None),
        (entry("A", "Integer", LowerBound=1, ScalarIncrement=4), 8, "8 is not in steps of 4"),
        (entry("A", "Integer"), "nine", "'nine' is no whole number"),
        (entry("A", "Integer"), True, "'true' is no whole number"),
        (entry("A", "Boolean"), True, None),
        (entry("A", "Boolean"), "yes", "'yes' is neither true nor false"),
        (entry("A", "String", MinLength=1, MaxLength=3), "abc", None),
        (entry("A", "String", MinLength=1, MaxLength=3), "", "shorter than 1"),
        (entry("A", "String", MinLength=1, MaxLength=3), "abcd", "longer than 3"),
        (entry("A", "Password"), "x", "type 'Password'"),
        (entry("A", ReadOnly=True), "On", "is read-only"),
        (entry("A", Immutable=True), "On", "is fixed"),
        (entry("A", GrayOut=True), "On", "is grayed out"),
        (entry("A", Hidden=True), "On", "is hidden"),
        (entry("B"), "On", "A is not in the attribute registry"),
    ],
)
def test_values(one: dict[str, Any], value: Any, problem: str | None) -> None:
    found = registry(one).problem({"A": value}, {"A": "On"})
    assert (found is None) if problem is None else (problem in str(found))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("Integer", "-12", -12),
        ("Integer", "twelve", "twelve"),
        ("Integer", "1" * 30, "1" * 30),
        ("Boolean", "True", True),
        ("Boolean", "false", False),
        ("Boolean", "yes", "yes"),
        ("Enumeration", "12", "12"),
    ],
)
def test_texts_become_what_the_attribute_takes(kind: str, text: str, value: Any) -> None:
    assert registry(entry("A", kind)).typed("A", text) == value


@pytest.mark.parametrize(
    ("terms", "b", "holds"),
    [
        ([term("B", "EQU", "x")], "x", True),
        ([term("B", "EQU", "x")], "y", False),
        ([term("B", "NEQ", "x")], "y", True),
        ([term("B", "EQU", True)], "true", True),
        ([term("B", "GTR", 4)], 5, True),
        ([term("B", "GTR", 5)], 5, False),
        ([term("B", "GEQ", 5)], 5, True),
        ([term("B", "LSS", 5)], 4, True),
        ([term("B", "LEQ", 5)], 6, False),
        ([term("B", "GTR", 4)], "x", False),
        ([term("B", "ODD", 4)], 4, False),
        ([term("B", "EQU", "x"), term("A", "EQU", "Off", MapTerms="AND")], "x", True),
        ([term("B", "EQU", "x"), term("A", "EQU", "On", MapTerms="AND")], "x", False),
        ([term("B", "EQU", "x"), term("A", "EQU", "Off", MapTerms="OR")], "y", True),
        ([term("B", "EQU", "x", MapTerms="OR"), term("A", "EQU", "Off")], "y", True),
        ([term("B", "EQU", "x", MapTerms="AND"), term("A", "EQU", "Off")], "y", False),
        ([term("B", "EQU", "x"), term("B", "EQU", "y")], "y", True),
        ([term("B", "EQU", "x"), term("B", "EQU", "y")], "z", False),
        ([term("B", "EQU", "x", MapTerms="PERHAPS"), term("A", "EQU", "Off")], "y", True),
        ([term("B", "EQU", "x", MapTerms="AND")], "x", True),
        (postfix("x y AND y y AND,OR"), "x", False),
        (postfix("x y AND y y AND,OR"), "y", True),
        (postfix("y x y OR,AND"), "y", True),
        (postfix("y x y OR,AND"), "x", False),
    ],
)
def test_conditions(terms: list[dict[str, Any]], b: Any, holds: bool) -> None:
    known = registry(entry("A"), entry("B"), rules=[rule("A", "ReadOnly", True, *terms)])
    found = known.problem({"A": "Off"}, {"A": "On", "B": b})
    assert (found is not None) is holds


A, B = entry("A"), entry("B")
LOCKED = [rule("A", "ReadOnly", True, term("B", "EQU", "Off"))]
EITHER = [rule("A", "ReadOnly", True, term("B", "EQU", "x"), term("B", "EQU", "y"))]
OPENED = [rule("A", "ReadOnly", "false", term("B", "EQU", 1))]
FORCED = [rule("A", "CurrentValue", "On", term("B", "EQU", 1))]
SIDE = [rule("B", "CurrentValue", 7, term("A", "EQU", "Off"))]
FEW = term("C", "EQU", "few")
ONE_OF = [rule("A", "Value", [{"ValueName": "On"}], FEW), rule("B", "UpperBound", 5, FEW)]
ODD = [{"Type": "Expression", "Dependency": {"MapFrom": [], "MapToAttribute": "A"}}, 7, None]
OF_ENTRY = [rule("A", "Hidden", True, term("B", "EQU", True, MapFromProperty="Hidden"))]
# Entries and rules; what is wanted, what is so beside A On, what is pending; and what is wrong.
RULES: dict[str, tuple[Any, Any, Any, Any, Any, str | None]] = {
    "says while what": ([A, B], EITHER, {}, {"B": "y"}, {}, "A: is read-only while B is y"),
    "holds": ([A, B], LOCKED, {}, {"B": "Off"}, {}, "A: is read-only while B is Off"),
    "is lifted by what is wanted": ([A, B], LOCKED, {"B": "On"}, {"B": "Off"}, {}, None),
    "opens": ([entry("A", ReadOnly=True)], OPENED, {}, {"B": 1}, {}, None),
    "opens not": ([entry("A", ReadOnly=True)], OPENED, {}, {"B": 2}, {}, "A: is read-only"),
    "forces a value": ([A, B], FORCED, {}, {"B": 1}, {}, "A would be On, not Off: B is 1"),
    "has a side effect": ([A], SIDE, {}, {"B": 1}, {}, "B would be 7, not 1: A is Off"),
    "has none": ([A], SIDE, {}, {"B": 7}, {}, None),
    "leaves choices": ([A, entry("C")], ONE_OF, {}, {"C": "many"}, {}, None),
    "limits choices": (
        *([A, entry("C")], ONE_OF, {}, {"C": "many"}, {"C": "few"}, "A: 'Off' is none of: On"),
    ),
    "limits bounds": (
        *([A, entry("B", "Integer", UpperBound=9), entry("C")], ONE_OF, {"A": "On", "B": 9}),
        *({"B": 1, "C": "many"}, {"C": "few"}, "B: 9 is above 5"),
    ),
    "is of a property of the entry": (
        *([A, entry("B", Hidden=True)], OF_ENTRY, {}, {"B": 1}, {}),
        "A: is hidden while B is true",
    ),
    "of another type is none": ([A], ODD, {}, {}, {}, None),
}


@pytest.mark.parametrize(
    ("entries", "rules", "wanted", "current", "pending", "problem"), RULES.values(), ids=RULES
)
def test_a_rule(
    entries: Any, rules: Any, wanted: Any, current: Any, pending: Any, problem: str | None
) -> None:
    known = registry(*entries, rules=rules)
    assert known.problem({"A": "Off", **wanted}, {"A": "On", **current}, pending) == problem


@pytest.mark.parametrize(("b", "locked"), [("x", True), ("y", False)])
@pytest.mark.parametrize("flag", ["ReadOnly", "GrayOut", "Hidden"])
def test_a_flag_that_a_rule_raises_now_is_down_without_it(flag: str, b: str, locked: bool) -> None:
    rules = [rule("A", flag, True, term("B", "NEQ", "y"))]
    known, now = registry(entry("A", **{flag: True}), B, rules=rules), {"A": "On", "B": "x"}
    assert (known.problem({"A": "Off"}, now, {"B": b}) is not None) is locked
    assert known.problem({"A": "Off"}, {**now, "B": "y"}) is not None  # by no rule, so for good


class TestSnoopMode:
    def test_presence_in_the_registry_is_not_applicability(self) -> None:
        listed = registry(entry("SnoopMode", values=["EarlySnoop", "HomeSnoop"]))
        with pytest.raises(BmcError) as caught:
            find_knob("bios.snoop_mode", {"UpiPrefetch": "Enabled"}, listed)
        assert caught.value.reason == "refused"
        assert "SnoopMode (EarlySnoop, HomeSnoop)" in str(caught.value)
        with pytest.raises(BmcError, match="no such setting"):
            find_knob("bios.snoop_mode", {"A": "On"}, registry(entry("A")))
        knob = find_knob("bios.snoop_mode", {"SnoopMode": "EarlySnoop"}, listed)
        assert set(knob.modes) == {"home", "early"}  # a mode that this machine lacks is none

    @pytest.mark.parametrize(
        ("values", "home"),
        [
            (["Home Snoop", "Home Snoop Plus"], "Home Snoop"),
            (["Home"], "Home"),
            (["Home Snoop Plus"], "Home Snoop Plus"),
        ],
    )
    def test_the_first_spelling_that_the_registry_allows(
        self, values: list[str], home: str
    ) -> None:
        name, last = "Processors_SnoopPreference", values[-1]
        listed = registry(entry(name, values=values))
        knob = find_knob("bios.snoop_mode", {name: last}, listed)
        assert knob.modes == {"home": {name: home}}
        # Another spelling beside it is another mode.
        assert knob.mode_of({name: last}) == ("home" if last == home else f"{name}={last}")

    def test_opaque_name_by_its_displayed_one_unless_two_have_that(self) -> None:
        numbered = entry("QPIS001", values=["00", "01"], DisplayName="Snoop Mode")
        numbered["Value"][1]["ValueDisplayName"] = "Home Snoop"
        knob = find_knob("bios.snoop_mode", {"QPIS001": "00"}, registry(numbered))
        assert knob.modes == {"home": {"QPIS001": "01"}}
        both = [entry(name, DisplayName="Snoop Mode") for name in ("Q1", "Q2")]
        with pytest.raises(BmcError, match=r"Q1 .* Q2"):
            find_knob("bios.snoop_mode", {"Q1": "On", "Q2": "On"}, registry(*both))


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ([("0", "Enable"), ("1", "Disable")], ["Enable", "Disable"]),
        ([("Enable", "Disable"), ("1", "Enable")], ["Enable", "1"]),
        ([("0", "Enable"), ("1", "Enable")], ["0", "1"]),
        ([("0", "Enable"), ("1", "")], ["0", "1"]),
    ],
)
def test_values_are_displayed_names_where_the_default_is_surely_one(
    more: list[tuple[str, str]], names: list[str]
) -> None:
    listed = [{"ValueName": value, "ValueDisplayName": shown} for value, shown in more]
    one = {"AttributeName": "A", "Type": "Enumeration", "Value": listed, "DefaultValue": "Enable"}
    assert list(registry(one).values("A")) == names
    odd = {**one, "Value": [*listed, "garbage"]}
    assert list(registry(odd).values("A"))[:2] == [value for value, _ in more]
