# SPDX-License-Identifier: Apache-2.0
"""`edgetune status`: what is asked for, and the same text again and again with `--watch`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from edgetune.base.errors import InputError, StoreError
from edgetune.rollout.steps.pause_pop import pause_pop
from lab import cli
from lab.runner.screen import Screen
from lab.runner.watch import Watch, status_teller
from tests.lab.test_progress import Terminal as Tty
from tests.support import ROOT
from tests.support.terminal import Terminal
from tests.support.virtual_clock import VirtualClock
from tests.support.waiting import wait_until
from tests.support.world import World, changing


def told(clock: VirtualClock, stream: io.StringIO, *texts: str | Exception) -> None:
    """Watch these texts, one after the other, and then Ctrl-C."""
    left = iter(texts)

    def ask(columns: int) -> str:
        text = next(left)
        if isinstance(text, Exception):
            raise text
        return text

    sleeps = iter([None] * (len(texts) - 1))

    def then() -> None:
        try:
            next(sleeps)
        except StopIteration:
            raise KeyboardInterrupt from None

    clock.then = then
    Watch(Screen(stream), ask).run()


class TestElsewhere:
    def test_what_changed_is_printed_and_a_store_that_is_away_takes_nothing_from_it(
        self, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        row = "lab1  accept_queue  changing for {}: batch {} of 6, 3 hosts out"
        texts = [row.format("5s", 1), row.format("8s", 1), row.format("1m2s", 2)]
        told(clock, io.StringIO(), *texts)
        lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
        assert lines == [texts[0], texts[2]]
        with pytest.raises(InputError):
            told(clock, io.StringIO(), InputError("parameter", "rollout", "no"))
        told(clock, io.StringIO(), "a", StoreError("Redis: away"), "a")
        lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
        assert [line[:16] for line in lines] == ["a", "Not known since "]
        assert lines[1].endswith(": Redis: away")


class TestOnATerminal:
    @pytest.fixture(autouse=True)
    def size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        self.resize(monkeypatch, 60, 8)

    @staticmethod
    def resize(monkeypatch: pytest.MonkeyPatch, columns: int, lines: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))

    def test_a_frame_takes_the_place_of_the_one_before_and_is_never_too_tall(self) -> None:
        stream = Tty()
        screen = Screen(stream)
        screen.frame("a\nb", "now")
        screen.frame("a", "then")
        assert stream.getvalue() == "\r\x1b[Ja\nb\nnow\n\x1b[3A\r\x1b[Ja\nthen\n"
        tall = Tty()
        Screen(tall).frame("\n".join(map(str, range(50))), "now")
        lines = tall.getvalue().split("\x1b[J")[1].splitlines()
        assert (len(lines), lines[-2:]) == (7, ["... and 45 more lines", "now"])

    def test_ctrl_c_leaves_the_cursor_below(
        self, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stream = Tty()
        told(clock, stream, "a", "b")
        assert stream.getvalue().endswith("Ctrl-C ends this\n")
        assert capsys.readouterr().out == "\n"


class TestCommand:
    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
        """A rollout, and a configuration for the command beside it."""
        made = changing(tmp_path)
        (tmp_path / "edgetune.yaml").write_text(yaml.safe_dump(made.config))
        monkeypatch.setenv("EDGETUNE_HOME", str(tmp_path))
        monkeypatch.setenv("EDGETUNE_PACK", str(ROOT))
        monkeypatch.delenv("EDGETUNE_CONFIG", raising=False)
        monkeypatch.setenv("EDGETUNE_RUN", "edgetune run ")
        return made

    def test_each_text_is_asked_for_anew(self, world: World) -> None:
        ended: list[str] = []
        tell = status_teller(world.config, {"rollout": "", "timeout": 9}, lambda: ended)
        before = tell(1000)
        pause_pop(world.context, "lab1", reason="peak")
        assert "PAUSED" in tell(1000) and "PAUSED" not in before
        ended.append("run-1")
        assert "NO OWNER" in tell(1000)

    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            (["a", "b", "--watch"], 2, "one rollout or PoP, not a and b"),
            (["--watch", "--json"], 2, "--watch is for people, --json for programs"),
            (["--watch", "bogus=1"], 2, 'has no parameter "bogus"'),
            (["--watch", "lab1", "rollout=lab1"], 2, 'parameter "rollout" is given twice'),
            (["--watch", "lab9"], 2, "there is no rollout 'lab9', and no PoP of that name (did"),
        ],
    )
    @pytest.mark.usefixtures("world")
    def test_wrong_input_is_one_error(
        self, words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["status", *words]) == code
        out, err = capsys.readouterr()
        told = err or json.loads(out)["error"]
        assert says in told
        assert len(told.splitlines()) <= 2

    def test_a_store_that_fails_is_told_as_that(
        self, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = {**world.config, "records": f"sqlite:///{tmp_path}/none/state.sqlite"}
        (tmp_path / "edgetune.yaml").write_text(yaml.safe_dump(config))
        assert cli.main(["status", "--watch"]) == 3
        out, err = capsys.readouterr()
        assert out == "" and "none/state.sqlite" in err

    @pytest.mark.processes
    def test_ctrl_c_ends_it_with_status_0_and_the_terminal_as_it_was(
        self, world: World, tmp_path: Path
    ) -> None:
        terminal = Terminal(tmp_path, ["status", "--watch"])
        before = terminal.modes()
        wait_until(lambda: b"Ctrl-C ends this" in terminal.shown())
        terminal.press(b"\x03")
        code, lines = terminal.all_lines()
        assert code == 0, lines
        assert terminal.modes() == before
        assert any(line.startswith("lab1  accept_queue  changing for ") for line in lines)
        assert "\x1b[?" not in terminal.shown().decode()
