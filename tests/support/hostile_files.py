# SPDX-License-Identifier: Apache-2.0
"""Files of every kind that people write, and what is dangerous in each of them.

As a program it reads them all in one process, and prints a line of JSON for each: the kind, the
danger, what was said of it (None if nothing was), and the seconds of CPU.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

import yaml

from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.intent.campaign import load_campaign
from edgetune.intent.tuning import load_tuning
from edgetune.net.bmc.credentials import Credentials
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.config import read_config

MANY_BYTES = 5_000_000

Reader = Callable[[Path], Any]


def _read_credentials(path: Path) -> Any:
    return Credentials(lambda key: None, str(path), {})("bmc")


FILES: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
KINDS: Mapping[str, Reader] = {
    "inventory": YamlInventory,
    "tuning": load_tuning,
    "campaign": load_campaign,
    "config": lambda path: read_config(load_yaml(path)),
    "credentials": _read_credentials,
}

NUMBERS = {
    "nan": ".nan",
    "NaN": ".NaN",
    "infinite": ".inf",
    "less than all": "-.INF",
    "huge": "1.0e+300",
    "beyond a float": "1.0e+999",
    "of 5,000 digits": "9" * 5000,
    "of 10 MB": "9" * 10_000_000,
    "octal": "022",
    "hexadecimal": "0x1F",
    "binary": "0b11",
    "with an underscore": "1_000",
    "to the base of 60": "1:30",
    "a part of 60": "1:30.5",
    "a tag": "!!python/object:os.system {}",
    "a set": "!!set {a}",
}

_BOMB = "".join(f"  - &b{i} [{', '.join([f'*b{i - 1}'] * 10)}]\n" for i in range(1, 10))
_MERGES = "".join(f"  - &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}\n" for i in range(1, 10))
_CHAIN = "".join(f"  - &c{i} [*c{i - 1}]\n" for i in range(1, 20_000))

ADDED: Mapping[str, str] = {
    "lists of aliases": f"zz:\n  - &b0 [1]\n{_BOMB}",
    "merges of aliases": f"zz:\n  - &m0 {{a: 1}}\n{_MERGES}",
    "a long text many times": f"zz:\n  - &t {'x' * 100_000}\n  - [{', '.join(['*t'] * 10_000)}]\n",
    "a chain of aliases": f"zz:\n  - &c0 [1]\n{_CHAIN}",
    "an alias of itself": "zz: &a [*a]\n",
    "an alias of nothing": "zz: *a\n",
    "an anchor twice": "zz: [&a 1, &a 2]\n",
    "a merge of a number": "zz: {<<: 5}\n",
    "two merges": "zz: {<<: {a: 1}, <<: {b: 1}}\n",
    "100,000 lists": f"zz: {'[' * 100_000}\n",
    "100,000 mappings": f"zz: {'{a: ' * 100_000}\n",
    "100,000 lists in a line": f"zz:\n  {'- ' * 100_000}\n",
    "100,000 keys of keys": f"zz:\n  {'? ' * 100_000}\n",
    "5,000,000 numbers": f"zz: [{'1,' * 5_000_000}]\n",
    "a key twice": "zz: 1\nzz: 2\n",
    "a key below twice": "zz: {a: 1, 'a': 2}\n",
    "a number as a key": "1: 1\n",
    "a list as a key": "[a]: 1\n",
    "no as a key": "no: 1\n",
    "nothing as a key": "~: 1\n",
    "a date as a key": "2026-01-31: 1\n",
    "a name of 10 MB": f"? {'x' * 10_000_000}\n: 1\n",
    "a name of 900 characters": f"{'x' * 900}: 1\n",
    "a name in two lines": '"a\\nb": 1\n',
    "a text of 10 MB": f"zz: {'x' * 10_000_000}\n",
    "a zero": 'zz: "\\0"\n',
    "half a character": 'zz: "\\ud800"\n',
    "a control character": "zz: \x07\n",
    "a second document": "---\nzz: 1\n",
    "no end": "zz: [1\n",
    "a tab": "zz:\n\t- 1\n",
}
BYTES: Mapping[str, bytes] = {
    "Latin-1": "zz: b\xfccher\n".encode("latin-1"),
    "17 MB": b"# " + b"x" * (17 << 20) + b"\n",
}


def cases() -> Iterator[tuple[str, str, bytes]]:
    """Kind, danger and content of each file; those of many megabytes are of one kind only."""
    for kind, danger, data in _all_cases():
        if len(data) < MANY_BYTES or kind == "inventory":
            yield kind, danger, data


def _all_cases() -> Iterator[tuple[str, str, bytes]]:
    for kind, own in FILES.items():
        text, usual = own["text"], own["usual"]
        for danger, number in NUMBERS.items():
            yield kind, danger, text.replace("NUMBER", number).encode()
        good = text.replace("NUMBER", usual).encode()
        for danger, added in ADDED.items():
            yield kind, danger, good + added.encode()
        for danger, data in BYTES.items():
            yield kind, danger, good + data
        yield kind, "UTF-16", good.decode().encode("utf-16")


def main(folder: Path) -> None:
    """Read them all."""
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    for kind, danger, data in cases():
        path = folder / "hostile.yaml"
        path.write_bytes(data)
        path.chmod(0o600)
        del data
        started = time.process_time()
        try:
            KINDS[kind](path)
            said = None
        except InputError as error:
            said = str(error)
        print(json.dumps([kind, danger, said, time.process_time() - started]), flush=True)
    print(json.dumps(_peak_mb()))


def _peak_mb() -> int:
    """The most memory of this program; ``ru_maxrss`` is at least that of the one who started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


if __name__ == "__main__":
    main(Path(sys.argv[1]))
