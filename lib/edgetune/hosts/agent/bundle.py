# SPDX-License-Identifier: Apache-2.0
"""The agent as one text, which needs nothing else of edgetune where it runs."""

import os
from functools import lru_cache
from typing import Dict, Iterator, Tuple

PACKAGES = ("edgetune.hosts.agent", "edgetune.vocabulary")

TEXT = """\
# SPDX-License-Identifier: Apache-2.0
# The host agent of edgetune: the modules of lib/edgetune/hosts/agent and lib/edgetune/vocabulary,
# and what imports them.

import sys
from importlib.machinery import ModuleSpec

MODULES = {{
{modules}}}


class Sent:
    \"\"\"Finds the modules that came with this text, and compiles those that are needed.\"\"\"

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MODULES:
            package = any(other.startswith(name + ".") for other in MODULES)
            return ModuleSpec(name, Sent, origin="edgetune-agent", is_package=package)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        exec(compile(MODULES[name], "edgetune-agent/" + name, "exec"), vars(module))


sys.meta_path.insert(0, Sent)

from edgetune.hosts.agent import bundle
from edgetune.hosts.agent.__main__ import main

if "source" not in globals():
    with open(__file__, "rb") as file:
        source = file.read()
bundle.received = source
sys.exit(main(sys.argv[1:]))
"""

received = b""
"""The text that this very program was started from; set by that text."""


def own_source() -> bytes:
    """The text to be kept on this host: what was sent, or made anew where we run from our files."""
    return received or make()


@lru_cache(maxsize=1)
def make() -> bytes:
    """The text, from the modules of `PACKAGES`."""
    listed = "".join(_literal(name, code) for name, code in sorted(modules().items()))
    return TEXT.format(modules=listed).encode()


def _literal(name: str, code: str) -> str:
    # As it stands, if that can be: a person at a host's console may want to read it.
    quotes = "'" * 3
    plain = quotes not in code and not code.endswith(("'", "\\"))
    return f"{name!r}: r{quotes}{code}{quotes},\n" if plain else f"{name!r}: {code!r},\n"


def modules() -> Dict[str, str]:
    """The code of each module by its full name; the packages around ours are empty."""
    found = {"edgetune": "", "edgetune.hosts": ""}
    top = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    for package in PACKAGES:
        for file, name in _files(os.path.join(top, *package.split(".")[1:]), package):
            with open(file, encoding="utf-8") as text:
                found[name] = text.read()
    return found


def _files(directory: str, package: str) -> Iterator[Tuple[str, str]]:
    for entry in sorted(os.listdir(directory)):
        path = os.path.join(directory, entry)
        stem, suffix = os.path.splitext(entry)
        if entry == "__init__.py":
            yield path, package
        elif suffix == ".py":
            yield path, f"{package}.{stem}"
        elif os.path.exists(os.path.join(path, "__init__.py")):
            yield from _files(path, f"{package}.{entry}")
