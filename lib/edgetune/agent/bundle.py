# SPDX-License-Identifier: Apache-2.0
"""The agent as one text, which needs nothing else of edgetune where it runs."""

import marshal
import os
from functools import lru_cache
from typing import Any, Dict

from edgetune.agent import kept_copy
from edgetune.agent.kept_copy import COMPILED, PROGRAM, dump, load
from edgetune.agent.vocabulary.places import AGENT

PACKAGE = "edgetune.agent"

TEXT = """\
# SPDX-License-Identifier: Apache-2.0
# The host agent of edgetune: the modules of lib/edgetune/agent, and what imports them.

import os
import sys
from importlib.machinery import ModuleSpec
from marshal import loads

MODULES = {{
{modules}}}
PARENTS = {{name.rpartition(".")[0] for name in MODULES}}


class Sent:
    \"\"\"Finds the modules that came with this text, and compiles those that are needed.\"\"\"

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MODULES:
            return ModuleSpec(name, Sent, origin="edgetune-agent", is_package=name in PARENTS)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        if name in KEPT:
            COMPILED[name] = loads(KEPT[name])
        else:
            COMPILED[name] = compile(MODULES[name], "edgetune-agent/" + name, "exec")
        exec(COMPILED[name], vars(module))


# What runs the copy on disk has read what lies compiled there.
KEPT = globals().get("KEPT", {{}})
COMPILED = {{}}
sys.meta_path.insert(0, Sent)

from edgetune.agent import bundle

bundle.received, bundle.modules_received, bundle.compiled = source, MODULES, COMPILED
KEPT = KEPT or bundle.compiled_here()

from edgetune.agent.__main__ import main

status = main(sys.argv[1:])
# Python would take everything down piece by piece.
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""

received = b""
"""The text that this very program was started from; set by that text, as are the next two."""

modules_received: Dict[str, str] = {}
"""The code of each of its modules, by full names."""

compiled: Dict[str, Any] = {}
"""The same compiled, of those that were imported so far."""


def own_source() -> bytes:
    """The text to be kept on this host: what was sent, or made anew where we run from our files."""
    return received or make()


@lru_cache(maxsize=1)
def make() -> bytes:
    """The text, from the modules of `PACKAGE`."""
    listed = "".join(_literal(name, code) for name, code in sorted(modules().items()))
    return TEXT.format(modules=listed).encode()


def copy_runner() -> bytes:
    """The file that runs the text which is kept on this host."""
    if modules_received:
        return modules_received[kept_copy.__name__].encode()
    with open(kept_copy.__file__, "rb") as file:
        return file.read()


def compiled_here() -> Dict[str, bytes]:
    """What this very text has lying compiled on this host; nothing where no boot hook is.

    Half of what the answer to a request takes is compiling.
    """
    return load(os.environ.get("EDGETUNE_ROOT", "") + AGENT + COMPILED, received)


def compiled_copy(name: str) -> bytes:
    """All of the text compiled, to be kept for boots and requests; b"" where that is there."""
    if load(name, received):
        return b""
    kept = {PROGRAM: marshal.dumps(compile(received, PROGRAM, "exec"))}
    for module, text in modules_received.items():
        code = compiled.get(module) or compile(text, f"edgetune-agent/{module}", "exec")
        kept[module] = marshal.dumps(code)
    return dump(received, kept)


def _literal(name: str, code: str) -> str:
    # As it stands, if that can be: a person at a host's console may want to read it.
    quotes = "'" * 3
    plain = quotes not in code and not code.endswith(("'", "\\"))
    return f"{name!r}: r{quotes}{code}{quotes},\n" if plain else f"{name!r}: {code!r},\n"


def modules() -> Dict[str, str]:
    """The code of each module by its full name; the package around ours is empty."""
    code = {"edgetune": ""}
    top = os.path.dirname(__file__)
    for directory, _, files in os.walk(top):
        for file in (name for name in files if name.endswith(".py")):
            path = os.path.join(directory, file)
            parts = os.path.relpath(path[: -len(".py")], top).split(os.sep)
            name = ".".join([PACKAGE, *(part for part in parts if part != "__init__")])
            with open(path, encoding="utf-8") as text:
                code[name] = text.read()
    return code
