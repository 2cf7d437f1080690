# SPDX-License-Identifier: Apache-2.0
"""The agent as one text, which needs nothing else of edgetune where it runs."""

import marshal
import os
from binascii import crc32
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from typing import Any, Dict, Iterator, Tuple

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
        if name not in COMPILED:
            COMPILED[name] = compile(MODULES[name], "edgetune-agent/" + name, "exec")
        exec(COMPILED[name], vars(module))


COMPILED = {{}}
sys.meta_path.insert(0, Sent)

from edgetune.hosts.agent import bundle

if "source" not in globals():
    with open(__file__, "rb") as file:
        source = file.read()
    COMPILED.update(bundle.load_compiled(__file__ + bundle.SUFFIX, source))
bundle.received, bundle.modules_received, bundle.compiled = source, MODULES, COMPILED

from edgetune.hosts.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""

SUFFIX = ".compiled"
"""What the name of the compiled copy ends with, after that of the copy that it is of."""

FOR_BOOTS = ("edgetune.hosts.agent.unattended", "edgetune.hosts.agent.undo")
"""What only a boot imports, which is to be found compiled there."""

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
    """The text, from the modules of `PACKAGES`."""
    listed = "".join(_literal(name, code) for name, code in sorted(modules().items()))
    return TEXT.format(modules=listed).encode()


def load_compiled(name: str, source: bytes) -> Dict[str, Any]:
    """What a text has compiled before, with this Python; nothing where that is not whole."""
    try:
        with open(name, "rb") as file:
            kept = file.read()
    except OSError:
        return {}
    head = _head(source, kept[_HEAD:])
    found: Dict[str, Any] = marshal.loads(kept[_HEAD:]) if kept[:_HEAD] == head else {}
    return found


def compiled_copy(name: str) -> bytes:
    """What is to be kept for boots beside what is kept there by now; b"" for nothing new.

    A boot imports some fifty modules, and compiling takes three quarters of that time.
    """
    kept = load_compiled(name, received)
    for module in FOR_BOOTS:
        if module in modules_received and module not in compiled:
            text = modules_received[module]
            compiled[module] = compile(text, f"edgetune-agent/{module}", "exec")
    if not set(compiled) - set(kept):
        return b""
    code = marshal.dumps({**kept, **compiled})
    return _head(received, code) + code


_HEAD = len(MAGIC_NUMBER) + 8


def _head(source: bytes, code: bytes) -> bytes:
    """For which Python and which text it is, and that it is whole."""
    sums = [crc32(own).to_bytes(4, "big") for own in (source, code)]
    return b"".join([MAGIC_NUMBER, *sums])


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
