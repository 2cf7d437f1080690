# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/reference from the pack's YAML and from code, and YAML that code says.

python docs/generate.py            write what has changed
python docs/generate.py --check    write nothing; exit 1 and name each file that is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT)]

from docs.pages.congestion import congestion_page  # noqa: E402
from docs.pages.drivers import drivers_page  # noqa: E402
from docs.pages.exported import exported_page  # noqa: E402
from docs.pages.facts import facts_page  # noqa: E402
from docs.pages.kinds import kinds_page  # noqa: E402
from docs.pages.machines import machines_page  # noqa: E402
from docs.pages.map import map_page  # noqa: E402
from docs.pages.metadata import metadata  # noqa: E402
from docs.pages.metrics import metrics_page  # noqa: E402
from docs.pages.pack import actions_page, chat_page, configuration_page, rules_page  # noqa: E402
from docs.pages.tunings import tunings_page  # noqa: E402
from edgetune.base.errors import InputError  # noqa: E402


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write or check the files below ``root``; returns the exit status."""
    stale = {}
    try:
        # Pages tell what stands in the metadata.
        for files in (metadata, pages_of):
            for name, text in files(root).items():
                found = _text_of(root / name)
                if found != text:
                    stale[name] = _first_difference(found, text)
                    if "--check" not in arguments:
                        (root / name).parent.mkdir(parents=True, exist_ok=True)
                        (root / name).write_text(text, encoding="utf-8")
    except (InputError, OSError) as error:
        print(f"docs/generate.py: {error}", file=sys.stderr)
        return 1
    if "--check" in arguments:
        for name, place in stale.items():
            print(f"{name}: out of date {place}, run python docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        print(f"{name}: written")
    return 0


def pages_of(root: Path) -> dict[str, str]:
    """Every page by its path; InputError names what is wrong with a source."""
    texts = {
        "configuration": configuration_page(root),
        "actions": actions_page(root),
        "rules": rules_page(root),
        "chat": chat_page(root),
        "tunings": tunings_page(root),
        "kinds": kinds_page(),
        "metrics": metrics_page(root),
        "exported-metrics": exported_page(root),
        "facts": facts_page(),
        "bmc-machines": machines_page(),
        "load-balancers": drivers_page(),
        "congestion": congestion_page(),
    }
    reference = {f"docs/reference/{name}.md": text for name, text in texts.items()}
    return {**reference, "docs/map.md": map_page()}


def _first_difference(found: str, wanted: str) -> str:
    """Such as ``at line 52, which must be: 'minimum: 1'``."""
    pairs = zip_longest(found.splitlines(True), wanted.splitlines(True), fillvalue="")
    number, line = next((n, new) for n, (old, new) in enumerate(pairs, 1) if old != new)
    return f"at line {number}, which must be: {line.strip()[:100]!r}"


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
