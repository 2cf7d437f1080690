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

from edgetune.hosts.agent.boot_loaders import boot_loader
from edgetune.hosts.agent.boot_loaders.base import BootLoader
from edgetune.hosts.agent.boot_loaders.grub_menu import (
    choose,
    kernels,
    read_menu,
    with_command_line,
)
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Unsupported
from tests.support import grub_emulator
from tests.support.agent_programs import instead
from tests.support.agent_root import near_root
from tests.support.boot_loaders import NEW, OLD, PLAIN_DISK
from tests.support.boot_loaders.grub import GrubDouble

LINE = "23 22 8:2 / /boot rw,relatime shared:2 - ext4 /dev/sda2 rw\n"


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrubDouble]:
    with near_root(tmp_path / "host") as root:
        yield instead(monkeypatch, GrubDouble(root))


def loader_of(double: GrubDouble) -> BootLoader:
    return boot_loader(Host(str(double.root.path)))


@pytest.mark.parametrize(
    ("line", "device", "says"),
    [
        (LINE.replace("ext4", "btrfs"), "", "which is on btrfs"),
        (LINE.replace("ext4", "zfs"), "", "which is on zfs"),
        (LINE, "sys/dev/block/8:2/dm/name", "which is on a device mapper"),
        (LINE, "sys/dev/block/8:2/md/level", "which is on a RAID"),
        # Of a partition the disk that it is on tells.
        (LINE, "sys/devices/virtual/block/md126/md/level", "which is on a RAID"),
        (LINE, "sys/devices/virtual/block/md126/bcache/state", "which is on bcache"),
        (LINE, "sys/devices/virtual/block/md126/queue/rotational", ""),
        (LINE.replace(" rw,relatime", " ro,relatime"), "", "mounted read-only"),
        (LINE.replace("8:2", "0:77"), "", "the unknown device 0:77"),
        ("", "", ""),
        (None, "", "an unknown file system"),
        # What is mounted over it later is what counts.
        (LINE.replace("ext4", "btrfs") + LINE, "", ""),
        (LINE + LINE.replace("ext4", "btrfs"), "", "which is on btrfs"),
        (LINE.replace("/boot ", "/boot/grubby "), "", ""),
    ],
)
def test_a_host_whose_grub_cannot_write_is_refused(
    double: GrubDouble, line: str | None, device: str, says: str
) -> None:
    first = PLAIN_DISK.splitlines()[0] + "\n"
    double.root.write("proc/self/mountinfo", "" if line is None else first + line)
    if device:
        double.root.write(device, "x\n")
    if device.startswith("sys/devices"):
        # As in sysfs: a link to a directory in that of the disk.
        part = double.root.write("sys/devices/virtual/block/md126/md126p2/partition", "2\n").parent
        number = double.root.path / "sys/dev/block/8:2"
        number.rmdir()
        number.symlink_to(os.path.relpath(part, number.parent))
    with pytest.raises(Unsupported, match=says) if says else nullcontext():
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


SUBMENU, TITLE = "Advanced options", f"Debian GNU/Linux, with Linux {OLD}"
BY_ID = f"gnulinux-advanced-77f2>gnulinux-{OLD}-advanced-77f2"


@pytest.mark.parametrize(
    ("saved", "says"),
    [
        (BY_ID, ""),
        (f"{SUBMENU}>{TITLE}", ""),
        (f"gnulinux-advanced-77f2>{TITLE}", ""),
        # GRUB boots the first line of its menu, or of the submenu.
        (TITLE, "at some place of its menu, now 'Debian GNU/Linux, with Linux 6.1.0-41-amd64'"),
        (SUBMENU, "at some place of its menu"),
        (f"{SUBMENU}>nothing", "at some place of its menu"),
        ("0", "at some place of its menu"),
        (f"1>{TITLE}", "at some place of its menu"),
        (f"{SUBMENU}>1", "at some place of its menu"),
        ("gnulinux-simple-77f2", "which is of no one kernel"),
        ("", "GRUB has saved no entry"),
    ],
)
def test_a_default_is_one_that_grub_finds_by_its_name_at_each_level(
    double: GrubDouble, saved: str, says: str
) -> None:
    double.add(NEW)
    double.write_env({"saved_entry": saved})
    if not says:
        assert loader_of(double).default_id() == BY_ID
        return
    with pytest.raises(Unsupported, match=f"{re.escape(says)}.*grub-set-default '.*{NEW}"):
        loader_of(double).default_id()


def test_a_menu_of_images_without_a_release_has_no_default(double: GrubDouble) -> None:
    menu = double.root.read("boot/grub/grub.cfg").replace(f"/vmlinuz-{OLD}", "/vmlinuz")
    double.root.write("boot/grub/grub.cfg", menu)
    with pytest.raises(Unsupported, match="is of no one kernel"):
        loader_of(double).default()


@pytest.mark.parametrize(
    ("env", "once"),
    [
        ({"next_entry": f"{SUBMENU}>{TITLE}"}, BY_ID),
        ({"next_entry": "1>1"}, BY_ID),
        ({"next_entry": "nothing"}, "nothing"),
        ({"next_entry": "edgetune-trial"}, "edgetune-trial"),
        # grub-reboot before 2.0 put the default aside.
        ({"prev_saved_entry": BY_ID, "saved_entry": "0"}, "0"),
        ({"prev_saved_entry": "", "saved_entry": BY_ID}, ""),
    ],
)
def test_the_entry_of_the_next_boot_is_told_by_its_id_where_it_has_a_kernel_of_its_own(
    double: GrubDouble, env: dict[str, str], once: str
) -> None:
    double.add(NEW)
    double.write_env({"saved_entry": BY_ID, **env})
    assert loader_of(double).once_id() == once
    assert loader_of(double).default_id() == BY_ID


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


@pytest.mark.processes
def test_the_double_says_what_a_shell_says(double: GrubDouble) -> None:
    loader = loader_of(double)
    loader.keep("mitigations", ["mitigations=off"])
    loader.keep("dyndbg", ["dyndbg=file e.c +p"])
    said, shell = double.said(), double.said_to_a_shell()
    assert [line.split() for line in said] == [line.split() for line in shell]
    assert loader.default().words[-1] == "mitigations=off"
