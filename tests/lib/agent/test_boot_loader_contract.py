# SPDX-License-Identifier: Apache-2.0
"""What every boot loader promises (`boot_loaders.BootLoader`), tried on a double of each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.agent.boot_loaders import TRIAL, BootLoader, boot_loader
from edgetune.agent.boot_loaders import boot_loaders as known
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kinds.kernel_cmdline import split, with_words, words_of
from tests.support import ROOT, boot_loaders
from tests.support.agent_programs import instead
from tests.support.agent_root import near_root
from tests.support.boot_loaders import NEW, OLD, Double

NAMES = [kind.name for kind in known()]


@pytest.fixture(params=NAMES)
def double(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Double]:
    with near_root(tmp_path / "host") as root:
        own: Double = boot_loaders.of(request.param).LOADER(root)
        yield instead(monkeypatch, own)


def loader_of(double: Double) -> BootLoader:
    return boot_loader(Host(str(double.root.path)))


def booted(double: Double, *words: str) -> bool:
    """Whether a boot is of the new kernel, and has each of these words."""
    release, line = double.boot()
    assert set(words) <= set(split(line)), line
    return release == NEW


def try_new(double: Double, *more: str) -> BootLoader:
    loader = loader_of(double)
    double.add(NEW)
    base = loader.entry_of(NEW)
    loader.boot_once(base, [*base.words, *more])
    return loader


def test_every_boot_loader_has_a_double() -> None:
    doubles = {file.stem for file in (ROOT / "tests/support/boot_loaders").glob("*.py")}
    assert sorted(doubles - {"__init__"}) == sorted(NAMES)


def test_a_host_without_any_says_so(tmp_path: Path) -> None:
    with near_root(tmp_path / "host") as root, pytest.raises(Unsupported, match="none that is"):
        boot_loader(Host(str(root.path)))


def test_it_is_found_and_reads_the_entry_that_is_booted(double: Double) -> None:
    loader = loader_of(double)
    loader.probe()
    loader.probe_install()
    assert isinstance(double, boot_loaders.of(loader.name).LOADER)
    entry = loader.default()
    release, line = double.boot()
    assert (entry.release, entry.id) == (OLD, double.id_of(OLD)) and release == OLD
    assert [word for word in split(line) if word in entry.words] == list(entry.words)
    assert words_of(entry.words, "console") == ["console=tty0", "console=ttyS0"]
    double.add(NEW)
    assert loader_of(double).default().release == OLD and not booted(double)
    assert loader_of(double).entry_of(NEW).release == NEW
    with pytest.raises(Failed, match="no entry for the kernel 9.9"):
        loader_of(double).entry_of("9.9")


def test_an_entry_is_booted_once_and_never_again(double: Double) -> None:
    loader = try_new(double, "panic=10", "dyndbg=file ec.c +p")
    assert loader.next().release == NEW and "dyndbg=file ec.c +p" in loader.next().words
    assert loader.default().release == OLD and double.default == double.id_of(OLD)
    assert booted(double, "panic=10", "dyndbg=file ec.c +p")
    assert not booted(double) and loader.next().release == OLD and loader.trial() is None


def test_entries_on_fat_keep_the_mode_of_its_mount(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition of EFI takes no other mode, and has no owners."""
    entries = double.root.path / "boot/loader/entries"
    if not entries.exists():
        return
    double.add(NEW)
    for file in entries.iterdir():
        file.chmod(0o700)
    real = os.fchmod

    def change(descriptor: int, mode: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().parent == entries and mode != 0o700:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", change)
    loader = loader_of(double)
    base = loader.entry_of(NEW)
    loader.boot_once(base, [*base.words, "panic=10"])
    kept = loader.kept("quiet")
    loader.keep("quiet", [])
    loader.unkeep("quiet", kept)
    assert booted(double, "panic=10")


def test_an_entry_is_tried_before_a_kernel_is_the_default(double: Double) -> None:
    loader = try_new(double, "panic=10")
    own = loader.entry_of(NEW)
    assert own.id == double.id_of(NEW) and "panic=10" not in own.words
    assert booted(double)
    loader.set_default(own.id)
    loader.forget_trial()
    assert booted(double) and booted(double) and loader.default() == own


def test_what_was_to_be_tried_can_be_forgotten(double: Double) -> None:
    """And what others ask for once is left."""
    before = double.root.tree()
    loader = loader_of(double)
    base = loader.default()
    loader.boot_once(base, [*base.words, "panic=10"])
    assert loader.trial() and loader.trial() == loader.next()
    assert "panic=10" in loader.next().words
    for _ in range(2):
        loader.forget_trial()
        assert loader.next() == base and not double.once and double.root.tree() == before
    double.add(NEW)
    loader.set_once(double.id_of(NEW))
    assert loader.once_id() == double.id_of(NEW) and loader.next().release == NEW
    loader.forget_trial()
    assert loader.once_id() == double.id_of(NEW)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("mitigations", ["mitigations=off"]),
        ("quiet", []),
        ("console", ["console=ttyS1,115200"]),
        ("isolcpus", ["isolcpus=2-5"]),
        ("dyndbg", ["dyndbg=file ec.c +p", "dyndbg=func x +p"]),
        ("transparent-hugepage", ["transparent_hugepage=never"]),
    ],
)
def test_words_are_kept_for_every_boot_and_taken_back(
    double: Double, parameter: str, words: list[str]
) -> None:
    before, loader = double.root.tree(), loader_of(double)
    was, kept = loader.default(), loader.kept(parameter)
    loader.keep(parameter, words)
    assert words_of(loader.default().words, parameter) == words
    others = {own for own in was.words if own not in words_of(was.words, parameter)}
    assert {own for own in loader.default().words if own not in words} == others
    assert words_of(split(double.boot()[1]), parameter) == words
    double.add(NEW)
    assert words_of(loader.entry_of(NEW).words, parameter) == words, "also of later kernels"
    loader.unkeep(parameter, kept)
    assert sorted(loader.default().words) == sorted(was.words)
    loader.unkeep(parameter, kept)
    double.root.path.joinpath("boot").rename(double.root.path / "var")
    left = {name for name, was in double.root.tree().items() if before[name] != was}
    assert not left


def test_a_default_without_a_name_or_of_ours_is_refused(double: Double) -> None:
    double.forget_default()
    for ask in (loader_of(double).probe, loader_of(double).default):
        with pytest.raises(Unsupported, match=r"set-default '?.*" + OLD):
            ask()
    loader = try_new(double)
    loader.set_default("edgetune-trial.conf" if loader.name == "systemd_boot" else TRIAL)
    with pytest.raises(Unsupported):
        loader.default()


def test_words_are_put_where_they_were() -> None:
    words = ("a", "console=tty0", "b", "console=ttyS0", "--", "console=x")
    assert with_words(words, "console", ["console=1"]) == ["a", "console=1", "b", "--", "console=x"]
    assert with_words(words, "new-one", ["new_one"])[4:] == ["new_one", "--", "console=x"]
    assert split('a  b="c d" "e=f g" h"i j"') == ("a", "b=c d", "e=f g", "hi j")
