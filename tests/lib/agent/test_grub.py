# SPDX-License-Identifier: Apache-2.0
"""What is special about GRUB: where it can write, how its menus are read, and its shell."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.boot_loaders import BootLoader, boot_loader
from edgetune.agent.boot_loaders.grub_menu import choose, kernels, read_menu, with_command_line
from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from tests.support import grub_emulator
from tests.support.agent_programs import instead
from tests.support.agent_root import near_root
from tests.support.boot_loaders import NEW, OLD
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.cases import cases

HERE = Path(__file__).parent


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrubDouble]:
    with near_root(tmp_path / "host") as root:
        yield instead(monkeypatch, GrubDouble(root))


def loader_of(double: GrubDouble) -> BootLoader:
    return boot_loader(Host(str(double.root.path)))


@pytest.mark.parametrize("case", cases(HERE / "grub_places.yaml"))
def test_a_host_whose_grub_cannot_write_is_refused(
    double: GrubDouble, case: dict[str, Any]
) -> None:
    double.root.write("proc/self/mountinfo", "".join(f"{line}\n" for line in case["mounts"]))
    device = case.get("device", "")
    if device:
        double.root.write(device, "x\n")
    if device.startswith("sys/devices"):
        # As in sysfs: a link to a directory in that of the disk.
        part = double.root.write("sys/devices/virtual/block/md126/md126p2/partition", "2\n").parent
        number = double.root.path / "sys/dev/block/8:2"
        number.rmdir()
        number.symlink_to(os.path.relpath(part, number.parent))
    with pytest.raises(Unsupported, match=case["why"]) if "why" in case else nullcontext():
        loader_of(double).probe()


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("boot/grub/grub.cfg", "next_entry", "other", "boots no entry once"),
        ("boot/grub/grub.cfg", "custom.cfg", "other", "includes no custom.cfg"),
        ("boot/grub/grub.cfg", "${saved_entry}", "0", "set GRUB_DEFAULT=saved in"),
        ("boot/grub/grubenv", "gnulinux-advanced-77f2>", "", "has saved the entry 'gnulinux-6"),
        ("boot/grub/grubenv", "gnulinux-advanced-77f2>gnulinux-6.1.0-40", "1>2", "'1>2-amd64"),
        ("boot/grub/grubenv", "advanced-77f2>gnulinux-6.1.0-40-amd64-advanced", "simple", "no one"),
    ],
)
def test_a_grub_that_could_boot_something_else_is_refused(
    double: GrubDouble, file: str, old: str, new: str, says: str
) -> None:
    double.root.write(file, double.root.read(file).replace(old, new))
    with pytest.raises(Unsupported, match=says):
        loader_of(double).probe()


RECORDED = json.loads(grub_emulator.CHOICES.read_text())


@pytest.mark.parametrize("row", RECORDED["choices"], ids=lambda row: repr(row["saved_entry"]))
def test_we_choose_what_grub_chose(row: dict[str, Any]) -> None:
    entry = choose(read_menu(RECORDED["menus"][row["menu"]]), row["saved_entry"]).entry
    ours = " ".join([entry.image, *entry.words]) if entry else ""
    assert row["boots"] == {"2.06": ours, "2.12": ours}


@pytest.mark.processes
@pytest.mark.skipif(not grub_emulator.PROGRAM, reason="there is no grub-emu")
@pytest.mark.parametrize("row", RECORDED["choices"][::10], ids=lambda row: repr(row["saved_entry"]))
def test_the_grub_of_this_machine_chooses_what_was_recorded(row: dict[str, Any]) -> None:
    chosen = grub_emulator.choose(RECORDED["menus"][row["menu"]], row["saved_entry"])
    assert {chosen} == set(row["boots"].values())


BY_ID = f"gnulinux-advanced-77f2>gnulinux-{OLD}-advanced-77f2"


@pytest.mark.parametrize("case", cases(HERE / "grub_entries.yaml"))
def test_an_entry_is_one_that_grub_finds_by_its_name_at_each_level(
    double: GrubDouble, case: dict[str, Any]
) -> None:
    """That of the next boot is told by its id where it has a kernel of its own."""
    double.add(NEW)
    double.write_env({"saved_entry": BY_ID, **case["env"]})
    if "why" in case:
        says = f"{re.escape(case['why'])}.*grub-set-default '.*{NEW}"
        with pytest.raises(Unsupported, match=says):
            loader_of(double).default_id()
        return
    assert loader_of(double).default_id() == BY_ID
    assert loader_of(double).once_id() == case.get("once", "")


def test_a_menu_of_images_without_a_release_has_no_default(double: GrubDouble) -> None:
    menu = double.root.read("boot/grub/grub.cfg").replace(f"/vmlinuz-{OLD}", "/vmlinuz")
    double.root.write("boot/grub/grub.cfg", menu)
    with pytest.raises(Unsupported, match="is of no one kernel"):
        loader_of(double).default()


def test_what_else_is_in_custom_cfg_stays(double: GrubDouble) -> None:
    own = "menuentry 'memtest' --id memtest {\n\tlinux16 /memtest\n}\n"
    link = double.root.path / "boot/grub/custom.cfg"
    link.symlink_to("../own.cfg")
    loader = loader_of(double)
    loader.boot_once(loader.default(), ["panic=10"])
    assert link.is_symlink() and "edgetune-trial" in double.root.read("boot/own.cfg")
    loader.forget_trial()
    assert link.is_symlink() and not link.exists(), "a link that leads nowhere yet"
    double.root.write("boot/grub/custom.cfg", own)
    for _ in range(2):
        loader.boot_once(loader.default(), ["panic=10"])
        assert double.root.read("boot/grub/custom.cfg").startswith(own)
        assert double.root.read("boot/grub/custom.cfg").count("edgetune-trial") == 1
    loader.forget_trial()
    assert double.root.read("boot/grub/custom.cfg") == own


def test_words_that_grub_would_obey_are_quoted_and_its_variables_are_not() -> None:
    text = "menuentry 'a' {\n\tlinux\t/vmlinuz-1 root=x ro $vt_handoff\n\tinitrd /i\n}\n"
    (entry,) = kernels(read_menu(text))
    assert (entry.id, entry.words) == ("a", ("root=x", "ro", "$vt_handoff"))
    lines = with_command_line(entry, [*entry.words, "dyndbg=file a.c +p; {x}"])
    assert lines[0] == "\tlinux\t/vmlinuz-1 root=x ro $vt_handoff 'dyndbg=file a.c +p; {x}'"
    assert shlex.split(lines[0])[-1] == "dyndbg=file a.c +p; {x}" and lines[1] == entry.lines[1]


@pytest.mark.parametrize("text", ["menuentry 'a' {\n\tlinux /v\n", "menuentry 'a {\n}\n"])
def test_a_menu_that_ends_early_is_no_menu(text: str) -> None:
    with pytest.raises(ValueError, match="no end|No closing"):
        read_menu(text)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("before", "parameter", "words"),
    [
        ("quiet mitigations=auto mitigations=x splash", "mitigations", ["mitigations=off"]),
        ("mitigations=auto", "mitigations", []),
        ("xmitigations=1 mitigations_x=1 mitigations", "mitigations", ["mitigations=off"]),
        ("a transparent_hugepage=always b", "transparent-hugepage", ["transparent_hugepage=never"]),
        ("a x.y=1 xzy=2", "x.y", ["x.y=3"]),
        ('a \\"dyndbg=file b.c +p\\" b', "dyndbg", ["dyndbg=file e.c +p"]),
        ('dyndbg=\\"file b.c +p\\" b', "dyndbg", []),
    ],
)
def test_a_shell_leaves_out_what_others_say_of_a_parameter(
    double: GrubDouble, before: str, parameter: str, words: list[str]
) -> None:
    text = f'GRUB_DEFAULT=saved\nGRUB_CMDLINE_LINUX="{before}"\nGRUB_CMDLINE_LINUX_DEFAULT="q"\n'
    double.root.write("etc/default/grub", text)
    double.has_shell = True
    loader_of(double).keep(parameter, words)
    default, own, usual = double.said_to_a_shell()
    first, second = (shlex.split(line) for line in (own, usual))
    name = parameter.replace("-", "_")
    others = [word for word in shlex.split(before.replace("\\", "")) if word.split("=")[0] != name]
    assert (default, first, second) == ("saved", others, ["q", *words])
