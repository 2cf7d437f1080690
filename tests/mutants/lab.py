# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the lab that would let a test believe what did not happen."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

LAB = mutations_of(
    "lab/machines",
    ["lab/test_machines"],
    (
        "a machine that was switched off boots again",
        "machine.py",
        'in ("guest-reset", "host-qmp-system-reset")',
        'in ("guest-reset", "host-qmp-system-reset", "host-qmp-quit")',
    ),
    (
        "a machine that asked for a reboot stays off",
        "machine.py",
        'in ("guest-reset", "host-qmp-system-reset")',
        'in ("host-qmp-system-reset",)',
    ),
    (
        "an answer of QEMU to another question is taken for that to this one",
        "monitor.py",
        'elif message.get("id") == self._asked:',
        "else:",
    ),
    (
        "an answer to an earlier conversation is taken for that of this one",
        "console.py",
        'while self._next() != {"return": number}:',
        'while "return" not in self._next():',
    ),
    (
        "everybody may read the keys of a machine",
        "machine.py",
        "place.touch(mode=0o600)",
        "place.touch()",
    ),
    (
        "an image of an older recipe is used",
        "image.py",
        "made_of = (SUITE, PACKAGES, CHANGES,",
        "made_of = (SUITE, CHANGES,",
    ),
)
