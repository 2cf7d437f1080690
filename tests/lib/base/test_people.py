# SPDX-License-Identifier: Apache-2.0
"""Names of people: one person has one, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.errors import RefusedError
from edgetune.base.people import actor, comparable, person, same_person, signed

# In full width, without a dot, with a joiner that does not show, as chats and directories have it.
SPELLINGS = ["alice", "Alice ", "\tALICE\n", "\uff21lice", "al\u0131ce", "alic\u00e9", ""]
SPELLINGS += ["alice\u034f", "@alice", "\uff20alice", "<@alice>", "<@U012AB|alice>", "*alice*"]
SPELLINGS += ["<mailto:alice@corp.example|Alice Liddell>", "alice,", "alice \U0001f680", "@"]
SPELLINGS += ["alice@corp", "alice@other.example/phone", "alice+approvals@corp", "CORP\\alice"]
SPELLINGS += ["alice/admin@CORP", "@alice:matrix.example"]


@pytest.mark.parametrize("other", SPELLINGS)
def test_one_person_in_another_spelling(other: str) -> None:
    assert same_person("alice", other)
    assert same_person(other, "alice")


@pytest.mark.parametrize("one, other", [("ace", "\u0430\u0441\u0435"), ("\u03bf", "O")])
def test_a_name_that_looks_like_another_in_another_alphabet(one: str, other: str) -> None:
    assert same_person(one, other)


TWO = [("alice", "bob"), ("alice", "@bob"), ("alice@corp", "bob@corp"), ("alice", "alice2")]
TWO += [("CORP\\alice", "CORP\\bob"), ("<@U012AB|alice>", "<@U012AC|bob>"), ("<@U012AB>", "U012AC")]
TWO += [("<@U012AB|alice>", "bob"), ("\u0430\u043b\u0438\u0441\u0430@corp", "bob@corp")]
TWO += [("ana maria", "anamaria"), ("\u041c\u0430\u0440\u0438\u044f", "Maria")]
TWO += [("\u5c71\u7530\u305f\u308d\u3046", "\u5c71\u7530")]


@pytest.mark.parametrize("one, other", TWO)
def test_two_people(one: str, other: str) -> None:
    assert not same_person(one, other)


ACCOUNTS = [
    "U012AB",
    "W0G9QF9C6",
    "U8U8U8U8U",
    "224829482945314816",
    "29:1bcXd-x",
    "9f7h3k2j1m4n5b6v7c8x9z0a1s",
    "8b2f4f0e-4e0b-4b7c-9d55-3c6c8c2b1a00",
]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_is_one_with_itself_and_cannot_be_compared_with_a_name(account: str) -> None:
    of_issuer = f"{account}@https://login.example"
    for spelt in (account, f"<@{account}>", f"@{account}", f"<@!{account}|alice>", of_issuer):
        assert same_person(account, spelt)
    assert same_person(account, account.lower())
    for name in ("alice", "@alice", "alice@corp"):
        for spelt in (f"<@{account}>", of_issuer):
            with pytest.raises(RefusedError, match="one is the id of an account, the other a name"):
                same_person(spelt, name)
    assert same_person(f"<@{account}|alice>", "alice")


@pytest.mark.parametrize("name", ["ULRICH", "WANDA", "alice1", "a1234", "1234"])
def test_a_name_is_no_account(name: str) -> None:
    assert person(name).names == {name.casefold()}
    assert not same_person(name, "bob")


def test_a_person_is_shown_as_compared() -> None:
    assert str(person("<@U012AB|Ana>")) == "ana or u012ab"
    assert str(person("Ana@corp")) == "ana"
    assert not person(" <@> ")


@pytest.mark.parametrize(
    "name, why",
    [
        ("\u0430lice", "mixes CYRILLIC and LATIN letters"),
        ("alice \u03bf", "mixes GREEK and LATIN letters"),
        ("al\u200bice", "holds characters that do not show"),
        ("\u202eecila", "holds characters that do not show"),
        ("al\x00ice", "holds characters that do not show"),
        ("alice\u3164", "mixes CJK and LATIN letters"),
    ],
)
def test_a_name_that_cannot_be_compared_is_refused(name: str, why: str) -> None:
    for call in (lambda: comparable(name), lambda: same_person("alice", name)):
        with pytest.raises(RefusedError, match=f"is no name to compare: it {why}") as error:
            call()
        assert "\n" not in str(error.value)


@given(st.text(max_size=12), st.text(max_size=3))
def test_white_space_and_case_make_nobody_else(name: str, space: str) -> None:
    try:
        known = comparable(name)
    except RefusedError:
        return
    assert comparable(known) == known
    assert same_person(name, f" {name}\t")
    assert same_person(known, name)


@pytest.mark.parametrize(
    ("given", "caller", "by"),
    [
        ("ana", "ana", "ana"),
        ("ana", "", "ana"),
        ("", "ana", "ana"),
        # As the system user rules act, and workflows that they began.
        ("rule edgetune.x", "stanley", "rule edgetune.x"),
        ("recovery by y of rule edgetune.x", "stanley", "recovery by y of rule edgetune.x"),
        ("recovery by y of ana", "ana", "recovery by y of ana"),
        # Nobody acts under another name alone.
        ("ceo", "ana", "ana as ceo"),
        ("rule edgetune.x", "ana", "ana as rule edgetune.x"),
        ("recovery by y of ceo", "ana", "ana as recovery by y of ceo"),
        ("banana", "ana", "ana as banana"),
    ],
)
def test_whom_stackstorm_knows_stands_in_a_signature(given: str, caller: str, by: str) -> None:
    assert signed(given, caller, "stanley") == by


@pytest.mark.parametrize(
    ("by", "who"),
    [
        ("ana", "person"),
        ("ana as rule edgetune.x", "person"),
        ("campaign queue-1 of ana", "person"),
        ("recoverer", "person"),
        ("rule edgetune.roll_back_degraded", "rule"),
        ("rule of_a_site", "rule"),
        ("rule edgetune.recover_left", "recovery"),
        ("recovery by rollout_pop of ana", "recovery"),
        # As earlier versions signed.
        ("rule recover_left", "recovery"),
        ("recover_orphans", "recovery"),
        ("rollout_pop", "recovery"),
        ("", "recovery"),
    ],
)
def test_a_signature_tells_people_rules_and_recoveries_apart(by: str, who: str) -> None:
    assert actor(by) == who
