# SPDX-License-Identifier: Apache-2.0
"""The web server that reads a file of prefixes: the table, and what it sets for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetune.agent.appliers import Configuration, Wanted
from edgetune.agent.appliers.file import HEAD, text_of
from edgetune.agent.vocabulary.prefixes import number_of
from lab.prefix_server import main, read_table


def test_it_reads_what_the_agent_writes() -> None:
    wanted = [Wanted("192.0.2.0/24", 0), Wanted("2001:db8:0:100::/56", 0)]
    text = text_of(Configuration("lab1", 7, "bbr", 600, wanted, "file", "sha256:0"))
    assert read_table(text) == {number_of(own.prefix): "bbr" for own in wanted}
    assert read_table(HEAD) == {} == read_table("")


@pytest.mark.parametrize(
    "line",
    ["192.0.2.0/24 bbr", "192.0.2.0/24", "192.0.2.1/24 bbr;", "192.0.2.0/25 bbr;", "x bbr;"],
)
def test_a_line_that_is_wrong_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prefixes"
    file.write_text(f"{HEAD}{line}\n")
    assert main(["check", str(file)]) == 1
    assert f"{file}: line 2: " in capsys.readouterr().err
    file.write_text(HEAD)
    assert main(["check", str(file)]) == 0
