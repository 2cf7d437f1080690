# SPDX-License-Identifier: Apache-2.0
"""Mistakes that would make a typed document that is not what the standard library makes."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

DOCUMENTS = mutations_of(
    "lib/edgetune",
    ["lib/test_dataclass"],
    (
        "a frozen document can be changed",
        "dataclass.py",
        '"__hash__": _hash, "__setattr__": _refuse, ',
        '"__hash__": _hash, ',
    ),
    (
        "documents of two classes are equal",
        "dataclass.py",
        "    if other.__class__ is not self.__class__:\n",
        "    if False:\n",
    ),
    (
        "all documents have one list",
        "dataclass.py",
        '    known[f"_make_{each.name}"] = each.default_factory\n',
        '    one = each.default_factory()\n    known[f"_make_{each.name}"] = lambda: one\n',
    ),
    ("a secret field is shown", "dataclass.py", "        if each.repr:\n", "        if True:\n"),
    (
        "a class below another has the default of the other",
        "dataclass.py",
        "        cls.__init__ = _compiled_init(cls)\n",
        '        cls.__init__ = _compiled_init(cls.__base__ if "number" in vars(cls) else cls)\n',
    ),
    (
        "a method that a class has of its own is lost",
        "dataclass.py",
        "        if name not in vars(cls):\n",
        "        if True:\n",
    ),
    ("a class is not told that one was made", "dataclass.py", '__post_init__"):', '__posted__"):'),
    (
        "each step imports HTTP and TLS",
        "rollout/silencing.py",
        "from edgetune import PACK, clock\n",
        "import http.client\nfrom edgetune import PACK, clock\n",
    ),
)
