# SPDX-License-Identifier: Apache-2.0
"""Every place of the agent that writes a file: what the file has beside its bytes stays.

The walk finds them in the syntax of the agent, so a new one has to be named here.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.boot_loaders import BOOT_LOADERS
from edgetune.hosts.agent.disk import NEW_FILE, opened
from edgetune.hosts.agent.files import remember_file, restore_file
from edgetune.hosts.agent.host import RESERVE, Host
from edgetune.hosts.agent.journal import FileState
from tests.support import ROOT
from tests.support.agent_root import NearRoot, file, near_root
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.kernels import GRACE, KernelHost, cmdline, kernel_host

AGENT = ROOT / "lib/edgetune/hosts/agent"

BY_ITSELF = {
    "disk.py Directory.replace": {"rename"},
    "disk.py Directory._open_draft": {"rename", "open"},
    "disk.py Directory._unlink": {"unlink"},
    "disk.py Directory.link": {"symlink"},
    "disk.py Directory.make_directory": {"mkdir", "fchmod"},
    "disk.py _fill": {"fdopen"},
    "metadata.py apply_metadata": {"fchown", "fchmod", "utime"},
    "metadata.py _apply_xattrs": {"setxattr", "removexattr"},
    # A file of the kernel: it has no bytes of its own.
    "host.py Host.write_attribute": {"open", "write"},
    # Room, which holds nothing.
    "host.py Host.reserve": {"open"},
    "host.py _allocate": {"posix_fallocate", "write"},
    # Our own count, in its own block: the disk is full.
    "host.py Host._remember": {"open", "fdopen"},
    "host.py Host.remove_directory": {"rmdir"},
    # Locks, which hold nothing.
    "host.py Host._open_lock": {"open"},
    "congestion.py Congestion._locked": {"open"},
    # Output, without a name.
    "host.py Host._run_to_the_end": {"TemporaryFile"},
    "host.py Host.attempt_within": {"TemporaryFile"},
    "__main__.py main": {"open"},
}
"""Who changes files without `Host.write`, and how."""

OF_THE_HOST = {
    "appliers/file.py File.flush",
    "appliers/file.py File._tell",
    "appliers/file.py File._clear",
    "boot_hook.py follow_up",
    "boot_loaders/bls.py Bls.write_trial",
    "boot_loaders/bls.py Bls._put_back",
    "boot_loaders/bls.py Bls._give",
    "boot_loaders/bls.py Bls._write_later",
    "boot_loaders/grub.py Grub.write_trial",
    "boot_loaders/grub.py Grub.remove_trial",
    "boot_loaders/grub.py Grub._put",
    "change.py _store",
    "drains/bird.py BirdDrain._tell_boots",
    "drains/flag.py Flag._set",
    "files.py _restore_file",
    "hand_over.py hand_over",
}
"""Who calls `Host.write` without a mode: what is there keeps what it has."""

OURS = {
    "appliers/file.py File._remember",
    "boot_hook.py BootHook._keep_compiled",
    "boot_hook.py BootHook._put",
    "congestion.py Congestion._save",
    "drains/base.py Note.write",
    "files.py Directories._keep",
    "host.py Host._remember",
    "journal.py Journals.save",
    "kinds/freebsd/kernel_boot_environment.py KernelBootEnvironment._give_hook",
    "textfile.py Textfile.keep",
    "textfile.py Textfile.write",
    "verbs/ready.py _mark_not_ready",
    "verbs/reboot.py run",
}
"""Who writes files that are ours alone, with a mode."""

CHANGES = re.compile(
    "chflags|chmod|chown|copy.*|fchmod|fchown|lchown|link|mk.*|move|.*Temporary.*|makedirs|"
    "posix_fallocate|pwritev?|remove.*|renames?|rmdir|rmtree|sendfile|setxattr|symlink|"
    "truncate|unlink|utime|writev?"
)
OF_MODULES = ("os", "shutil", "tempfile")
WRITING = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND")


@functools.cache
def calls() -> list[tuple[str, ast.Call]]:
    """Each call in the agent, with the function that it is in."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(AGENT.rglob("*.py"))}
    return [
        own
        for path, tree in trees.items()
        for own in _calls(tree, f"{path.relative_to(AGENT)}", [])
    ]


def _calls(node: ast.AST, name: str, inside: list[str]) -> Iterator[tuple[str, ast.Call]]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        inside = [*inside, node.name]
    if isinstance(node, ast.Call):
        yield f"{name} {'.'.join(inside)}", node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, name, inside)


def change_of(call: ast.Call) -> str:
    """What a call does to a file by itself; "" for nothing."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    if name in ("open", "fdopen"):
        text = ast.unparse(call)
        modes = [own.value for own in call.args[1:2] if isinstance(own, ast.Constant)]
        writes = any(set(str(mode)) & set("wax+") for mode in modes)
        return name if writes or any(flag in text for flag in WRITING) else ""
    by_module = isinstance(function, ast.Attribute) and ast.unparse(function.value) in OF_MODULES
    return name if by_module and CHANGES.fullmatch(name) else ""


def written_by(call: ast.Call) -> str:
    """Whose file a call of our one writer is for; "" for other calls."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("write", "replace"):
        return ""
    whose = ast.unparse(function.value)
    own = whose in ("host", "self.host", "self._host") or ast.unparse(function) == "place.replace"
    if not own and ast.unparse(function) != "self.replace":
        return ""
    has_mode = len(call.args) > 2 or any(each.arg == "mode" for each in call.keywords)
    return "ours" if has_mode or function.attr == "replace" else "the host's"


def test_all_that_changes_files_goes_by_one_writer() -> None:
    found: dict[str, set[str]] = {}
    for where, call in calls():
        if change_of(call):
            found.setdefault(where, set()).add(change_of(call))
    assert found == BY_ITSELF


def test_each_writer_is_known_to_write_our_files_or_those_of_the_host() -> None:
    found: dict[str, set[str]] = {"ours": set(), "the host's": set(), "": set()}
    for where, call in calls():
        found[written_by(call)].add(where)
    assert found["the host's"] == OF_THE_HOST
    assert found["ours"] == OURS


ACL = bytes.fromhex(
    "0200000001000600ffffffff020004000100000004000400ffffffff10000400ffffffff20000000ffffffff"
)
"""user::rw-,user:1:r--,group::r--,mask::r--,other::---"""
XATTRS = {
    "security.selinux": b"system_u:object_r:etc_runtime_t:s0\0",
    "security.ima": b"\x04\x04of other bytes",
    "trusted.own": b"1",
    "user.own": b"who wrote it",
    "system.posix_acl_access": ACL,
}


def mark(path: Path) -> None:
    """Give a file all that its file system takes beside its bytes, at a time long ago."""
    if os.geteuid() == 0:
        os.chown(path, 1, 2)
    path.chmod(0o640)
    for name, value in XATTRS.items():
        with contextlib.suppress(OSError):
            os.setxattr(path, name, value)
    os.utime(path, ns=(10**18 + 1, 10**18 + 123456789))


def beside(path: Path, *without: str) -> dict[str, Any]:
    """What a file has beside its bytes, and itself."""
    status = path.lstat()
    found = {
        "mode": oct(status.st_mode),
        "owner": (status.st_uid, status.st_gid),
        "mtime": status.st_mtime_ns,
        "leads": str(path.readlink()) if path.is_symlink() else "",
        "bytes": path.read_bytes(),
    }
    if not path.is_symlink():
        found.update({name: os.getxattr(path, name) for name in os.listxattr(path)})
    return {name: own for name, own in found.items() if name not in without}


# The sum is of other bytes, and a time is that of the bytes.
KEPT = ("mtime", "bytes", "security.ima")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[NearRoot]:
    with near_root(tmp_path / "host", init="systemd") as own:
        yield own


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_a_file_that_is_replaced_keeps_all_but_its_bytes(root: NearRoot, umask: int) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    before, was = beside(path, *KEPT), beside(path)
    host = Host(str(root.path))
    state = remember_file(host, "/etc/own.conf")
    previous = os.umask(umask)
    try:
        host.write("/etc/own.conf", b"new\n")
        assert path.read_bytes() == b"new\n" and beside(path, *KEPT) == before
        assert path.stat().st_mtime_ns != was["mtime"]
        assert "security.ima" not in os.listxattr(path)
        path.chmod(0o600)
        restore_file(host, "/etc/own.conf", state)
        assert beside(path) == was
        path.unlink()
        restore_file(host, "/etc/own.conf", state)
        assert beside(path) == was
    finally:
        os.umask(previous)


def test_a_file_with_the_bytes_of_before_gets_its_time_back(root: NearRoot) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    was, host = beside(path), Host(str(root.path))
    state = remember_file(host, "/etc/own.conf")
    os.utime(path)
    restore_file(host, "/etc/own.conf", state)
    assert beside(path) == was


def test_a_journal_of_old_tells_of_mode_and_owner_alone(root: NearRoot) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    host, was = Host(str(root.path)), beside(path)
    owner = path.stat().st_uid, path.stat().st_gid
    state = FileState(base64.b64encode(b"old\n").decode(), 0o640, *owner)
    restore_file(host, "/etc/own.conf", state)
    assert beside(path) == was, "nothing is written that is as it was told"
    path.write_bytes(b"new\n")
    restore_file(host, "/etc/own.conf", state)
    assert path.read_bytes() == b"old\n" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_list_that_a_directory_gives_is_not_left_on_a_file_that_had_none(root: NearRoot) -> None:
    path = root.write("etc/own/own.conf", "old\n")
    try:
        os.setxattr(path.parent, "system.posix_acl_default", ACL)
    except OSError:
        pytest.skip("this file system has no access control lists")
    path.chmod(0o644)
    before = beside(path, *KEPT)
    assert "system.posix_acl_access" not in before
    host = Host(str(root.path))
    host.write("/etc/own/own.conf", b"new\n")
    assert beside(path, *KEPT) == before
    host.write("/etc/own/ours", b"new\n", 0o600)
    assert (path.parent / "ours").stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("target", ["../usr/own", "/usr/own", "../usr/link"])
def test_a_link_stays_a_link_and_leads_to_the_new_bytes(root: NearRoot, target: str) -> None:
    path = root.write("usr/own", "old\n")
    mark(path)
    (root.path / "usr/link").symlink_to("./own")
    link = root.path / "etc/own"
    link.symlink_to(target)
    before = beside(path, *KEPT)
    Host(str(root.path)).write("/etc/own", b"new\n")
    assert str(link.readlink()) == target and path.read_bytes() == b"new\n"
    assert beside(path, *KEPT) == before


def test_a_link_that_leads_nowhere_leads_to_the_new_file(root: NearRoot) -> None:
    (root.path / "etc/own").symlink_to("made")
    Host(str(root.path)).write("/etc/own", b"new\n")
    assert root.read("etc/made") == "new\n" and (root.path / "etc/own").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="another's link takes root to make")
def test_a_link_of_another_user_is_not_followed(root: NearRoot) -> None:
    root.write("etc/secret", "old\n")
    link = root.path / "etc/own"
    link.symlink_to("secret")
    os.lchown(link, 65534, 65534)
    with pytest.raises(PermissionError):
        Host(str(root.path)).write("/etc/own", b"new\n")
    assert root.read("etc/secret") == "old\n"


def test_links_in_a_circle_end(root: NearRoot) -> None:
    (root.path / "etc/a").symlink_to("b")
    (root.path / "etc/b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        Host(str(root.path)).write("/etc/a", b"new\n")


def test_a_file_with_other_names_is_left_and_said_so_before_anything_is_done(
    root: NearRoot,
) -> None:
    path = root.write("etc/app/own.conf", "old\n")
    os.link(path, root.path / "etc/other")
    row = root.plan(file("/etc/app/own.conf", "new\n"))[0]
    assert row["status"] == "unsupported" and "own.conf has 2 hard links" in row["reason"]
    with pytest.raises(OSError, match="hard links") as caught:
        Host(str(root.path)).write("/etc/app/own.conf", b"new\n")
    assert caught.value.errno == errno.EMLINK
    assert root.read("etc/other") == root.read("etc/app/own.conf") == "old\n"


def test_a_new_file_of_the_reserve_has_the_label_of_its_directory(root: NearRoot) -> None:
    host, label = Host(str(root.path)), XATTRS["security.selinux"]
    host.reserve(4096)
    try:
        os.setxattr(host.path(RESERVE), "security.selinux", b"system_u:object_r:var_lib_t:s0\0")
        os.setxattr(root.path / "etc", "security.selinux", label)
    except OSError:
        pytest.skip("this file system takes no labels from us")
    with host.directory("/var/lib/edgetune") as state, host.directory("/etc") as etc:
        etc.replace("own", b"new\n", NEW_FILE, room=(state, "reserve"))
    assert os.getxattr(root.path / "etc/own", "security.selinux") == label


def test_a_file_of_ours_keeps_its_label_and_nothing_else(root: NearRoot) -> None:
    path = root.write("etc/ours", "old\n")
    mark(path)
    label = {name: own for name, own in beside(path).items() if name == "security.selinux"}
    Host(str(root.path)).write("/etc/ours", b"new\n", 0o600)
    now = beside(path, "mtime", "bytes", "leads")
    assert now == {"mode": "0o100600", "owner": (os.geteuid(), os.getegid()), **label}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_directories_and_new_files_do_not_depend_on_the_umask(root: NearRoot, umask: int) -> None:
    host, previous = Host(str(root.path)), os.umask(umask)
    try:
        host.make_directory("/etc/new/below", 0o750)
        host.write("/etc/new/below/file", b"new\n")
    finally:
        os.umask(previous)
    modes = [root.path / "etc/new", root.path / "etc/new/below", root.path / "etc/new/below/file"]
    assert [oct(path.stat().st_mode & 0o7777) for path in modes] == ["0o755", "0o750", "0o644"]


@pytest.mark.processes
def test_a_file_of_a_tuning_is_as_before_to_the_bit(root: NearRoot) -> None:
    path = root.write("etc/app/own.conf", "old\n")
    mark(path)
    before, was = beside(path, *KEPT), beside(path)
    root.apply(file("/etc/app/own.conf", "new\n"), file("/etc/made/by/us.conf", "x\n"))
    assert path.read_bytes() == b"new\n" and beside(path, *KEPT) == before
    root.restore()
    assert beside(path) == was and not (root.path / "etc/made").exists()


@pytest.fixture(params=[kind.name for kind in BOOT_LOADERS])
def kernels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host", request.param) as own:
        yield own


def rewritten(host: KernelHost) -> list[Path]:
    """The files of the host that a command line is kept in, or tried by."""
    if isinstance(host.loader, GrubDouble):
        return [host.write("boot/grub/custom.cfg", "# a person's\n")]
    entries = sorted((host.path / "boot/loader/entries").iterdir())
    return [host.path / "etc/kernel/cmdline", *entries]


def confirmed(host: KernelHost) -> None:
    """Try a command line, boot and confirm it."""
    host.apply(cmdline("mitigations=off"), **GRACE)
    assert host.boot_anew() == []
    assert host.confirm(cmdline("mitigations=off"))["confirmed"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_command_line_leaves_the_files_of_a_boot_loader_as_before(
    kernels: KernelHost, umask: int
) -> None:
    files = rewritten(kernels)
    for path in files:
        mark(path)
    before = [beside(path, *KEPT) for path in files]
    was = [beside(path) for path in files]
    previous = os.umask(umask)
    try:
        confirmed(kernels)
        assert [beside(path, *KEPT) for path in files] == before
        kernels.restore()
        assert [beside(path) for path in files] == was
    finally:
        os.umask(previous)


def test_a_command_line_of_later_kernels_may_be_a_link(kernels: KernelHost) -> None:
    link = kernels.path / "etc/kernel/cmdline"
    if not link.exists():
        return
    path = kernels.write("usr/share/own/cmdline", link.read_text())
    mark(path)
    was = beside(path)
    link.unlink()
    link.symlink_to("../../usr/share/own/cmdline")
    confirmed(kernels)
    assert link.is_symlink() and "mitigations=off" in path.read_text()
    kernels.restore()
    assert link.is_symlink() and beside(path) == was


def test_a_boot_loader_whose_files_have_other_names_is_refused_before_the_boot(
    kernels: KernelHost,
) -> None:
    for path in rewritten(kernels)[:1]:
        os.link(path, path.with_name("other"))
    row = kernels.plan(cmdline("mitigations=off"))[0]
    assert row["status"] == "unsupported" and "has 2 hard links" in row["reason"]


def test_what_others_write_meanwhile_is_no_older_for_it(kernels: KernelHost) -> None:
    files = rewritten(kernels)
    for path in files:
        mark(path)
    then = [path.stat().st_mtime_ns for path in files]
    confirmed(kernels)
    for path in files:
        path.write_text(path.read_text().replace("quiet", "quiet other") + "# theirs\n")
    kernels.restore()
    assert all(path.stat().st_mtime_ns > was for path, was in zip(files, then))
    assert all("# theirs" in path.read_text() or "other" in path.read_text() for path in files)


class Killed(BaseException):
    """The agent ends here."""


@pytest.mark.parametrize("verb", ["apply", "confirm", "restore"])
def test_an_agent_that_is_killed_before_a_file_is_in_its_place_leaves_no_draft(
    kernels: KernelHost, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    files = rewritten(kernels)
    for path in files:
        mark(path)
    was = [beside(path) for path in files]
    step, real, died = 0, os.rename, True
    while died:
        if verb != "apply":
            kernels.apply(cmdline("mitigations=off"), **GRACE)
            kernels.boot_anew()
        if verb == "restore":
            kernels.confirm(cmdline("mitigations=off"))
        left = [step]

        def rename(*given: Any, left: list[int] = left, **more: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            real(*given, **more)

        monkeypatch.setattr(os, "rename", rename)
        try:
            died = False
            if verb == "apply":
                kernels.apply(cmdline("mitigations=off"), **GRACE)
            elif verb == "confirm":
                kernels.confirm(cmdline("mitigations=off"))
            else:
                kernels.restore()
        except Killed:
            died = True
        monkeypatch.setattr(os, "rename", real)
        kernels.restore()
        assert [beside(path) for path in files] == was, step
        assert not {name for name in kernels.tree() if ".edgetune-" in name}, step
        step += 1
    assert step > 2


def test_an_empty_custom_cfg_of_a_person_stays(tmp_path: Path) -> None:
    with kernel_host(tmp_path / "host") as host:
        path = host.write("boot/grub/custom.cfg", "")
        mark(path)
        was = beside(path)
        confirmed(host)
        host.restore()
        assert beside(path) == was


@pytest.mark.parametrize("step", ["rename", "fsync", "setxattr", "utime"])
def test_a_writer_that_fails_half_way_leaves_the_old_file_and_no_draft(
    root: NearRoot, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    was, host = beside(path), Host(str(root.path))
    state = remember_file(host, "/etc/own.conf")
    text = base64.b64encode(b"other\n").decode()

    def fail(*given: object, **more: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output"):
        restore_file(host, "/etc/own.conf", state._replace(content=text))
    monkeypatch.undo()
    assert beside(path) == was
    with opened(str(root.path), "/etc") as directory:
        assert not directory.drafts("own.conf")
