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

from edgetune.agent.boot_loaders import boot_loaders
from edgetune.agent.disk import NEW_FILE, opened
from edgetune.agent.files import remember_file, restore_file
from edgetune.agent.host import RESERVE, Host
from edgetune.agent.journal import FileState
from edgetune.agent.verbs import uninstall
from edgetune.agent.vocabulary import places
from tests.support import ROOT
from tests.support.agent_root import NearRoot, file, near_root
from tests.support.boot_loaders.grub import GrubDouble
from tests.support.cases import table
from tests.support.kernels import GRACE, KernelHost, cmdline, kernel_host

AGENT = ROOT / "lib/edgetune/agent"

KNOWN = table(Path(__file__).with_name("writers.yaml"))

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
    assert found == {where: set(how) for where, how in KNOWN["by_itself"].items()}


def test_each_writer_is_known_to_write_our_files_or_those_of_the_host() -> None:
    found: dict[str, set[str]] = {"ours": set(), "the host's": set(), "": set()}
    for where, call in calls():
        found[written_by(call)].add(where)
    assert found["the host's"] == set(KNOWN["of_the_host"])
    assert found["ours"] == set(KNOWN["ours"])


def test_every_place_of_ours_is_removed() -> None:
    """What the agent names as its own, wherever it does."""
    known = {*uninstall.OURS, *uninstall.LAST, places.STATE, places.CONGESTION, places.NOT_READY}
    named = {name: text for name, text in vars(places).items() if name.isupper()}
    others = {"HOOKS", "SYSTEMD", "SETUP", "PREFIX_FILE_SETUP", "OURS", "HANDED_OVER"}
    assert {text for name, text in named.items() if name not in others} <= known


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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NearRoot]:
    with near_root(tmp_path / "host", "systemd", monkeypatch) as own:
        yield own


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    previous = os.umask(mask)
    try:
        yield
    finally:
        os.umask(previous)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0])
def test_a_file_that_is_replaced_keeps_all_but_its_bytes(root: NearRoot, mask: int) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    before, was, host = beside(path, *KEPT), beside(path), Host(str(root.path))
    state = remember_file(host, "/etc/own.conf")
    with umask(mask):
        host.write("/etc/own.conf", b"new\n")
        assert path.read_bytes() == b"new\n" and beside(path, *KEPT) == before
        assert path.stat().st_mtime_ns != was["mtime"]
        assert "security.ima" not in os.listxattr(path)
        for change in (lambda: path.chmod(0o600), path.unlink, lambda: os.utime(path)):
            change()
            restore_file(host, "/etc/own.conf", state)
            assert beside(path) == was
        # Nor do directories and new files depend on the umask.
        host.make_directory("/etc/new/below", 0o750)
        host.write("/etc/new/below/file", b"new\n")
    made = [root.path / "etc/new", root.path / "etc/new/below", root.path / "etc/new/below/file"]
    assert [oct(path.stat().st_mode & 0o7777) for path in made] == ["0o755", "0o750", "0o644"]


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


@pytest.mark.skipif(os.geteuid() != 0, reason="another's link takes root to make")
def test_a_link_of_another_user_is_not_followed(root: NearRoot) -> None:
    root.write("etc/secret", "old\n")
    link = root.path / "etc/own"
    link.symlink_to("secret")
    os.lchown(link, 65534, 65534)
    with pytest.raises(PermissionError):
        Host(str(root.path)).write("/etc/own", b"new\n")
    assert root.read("etc/secret") == "old\n"


def test_a_link_that_leads_nowhere_leads_to_the_new_file_but_not_in_a_circle(
    root: NearRoot,
) -> None:
    (root.path / "etc/own").symlink_to("made")
    Host(str(root.path)).write("/etc/own", b"new\n")
    assert root.read("etc/made") == "new\n" and (root.path / "etc/own").is_symlink()
    (root.path / "etc/a").symlink_to("b")
    (root.path / "etc/b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        Host(str(root.path)).write("/etc/a", b"new\n")


def test_a_file_with_other_names_is_left_and_said_so_before_anything_is_done(
    root: NearRoot,
) -> None:
    path = root.write("etc/app/own.conf", "old\n")
    os.link(path, root.path / "etc/other")
    linked = file("/etc/app/own.conf", "new\n")
    assert "own.conf has 2 hard links" in root.plan(linked)[0]["reason"]
    assert root.fail("apply", **root.change(linked))["reason"] == "refused"
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


@pytest.fixture(params=[kind.name for kind in boot_loaders()])
def kernels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KernelHost]:
    with kernel_host(tmp_path / "host", request.param) as own:
        yield own


def marked(host: KernelHost) -> list[Path]:
    """The files of the host that a command line is kept in, or tried by."""
    if isinstance(host.loader, GrubDouble):
        files = [host.write("boot/grub/custom.cfg", "# a person's\n")]
    else:
        entries = sorted((host.path / "boot/loader/entries").iterdir())
        files = [host.path / "etc/kernel/cmdline", *entries]
    for path in files:
        mark(path)
    return files


def confirmed(host: KernelHost) -> None:
    """Try a command line, boot and confirm it."""
    host.apply(cmdline("mitigations=off"), **GRACE)
    assert host.boot_anew() == []
    assert host.confirm(cmdline("mitigations=off"))["confirmed"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_command_line_leaves_the_files_of_a_boot_loader_as_before(
    kernels: KernelHost, mask: int
) -> None:
    files = marked(kernels)
    before, was = [beside(path, *KEPT) for path in files], [beside(path) for path in files]
    with umask(mask):
        confirmed(kernels)
        assert [beside(path, *KEPT) for path in files] == before
        kernels.restore()
        assert [beside(path) for path in files] == was


def test_a_file_of_a_boot_loader_may_be_a_link_but_have_no_other_name(
    kernels: KernelHost,
) -> None:
    link = kernels.path / "etc/kernel/cmdline"
    if link.exists():
        path = kernels.write("usr/share/own/cmdline", link.read_text())
        mark(path)
        was = beside(path)
        link.unlink()
        link.symlink_to("../../usr/share/own/cmdline")
        confirmed(kernels)
        assert link.is_symlink() and "mitigations=off" in path.read_text()
        kernels.restore()
        assert link.is_symlink() and beside(path) == was
        link.unlink()
        link.write_text(path.read_text())
    else:
        path = kernels.write("boot/grub/custom.cfg", "")
        mark(path)
        was = beside(path)
        confirmed(kernels)
        kernels.restore()
        assert beside(path) == was, "an empty one of a person stays"
    path = marked(kernels)[0]
    os.link(path, path.with_name("other"))
    row = kernels.plan(cmdline("mitigations=off"))[0]
    assert row["status"] == "unsupported" and "has 2 hard links" in row["reason"]


def test_what_others_write_meanwhile_is_no_older_for_it(kernels: KernelHost) -> None:
    files = marked(kernels)
    then = [path.stat().st_mtime_ns for path in files]
    confirmed(kernels)
    for path in files:
        path.write_text(path.read_text().replace("quiet", "quiet other") + "# theirs\n")
    kernels.restore()
    assert all(path.stat().st_mtime_ns > was for path, was in zip(files, then))
    assert all("# theirs" in path.read_text() or "other" in path.read_text() for path in files)


@pytest.mark.parametrize("step", ["rename", "fsync", "setxattr", "utime"])
def test_a_writer_that_fails_half_way_leaves_the_old_file_and_no_draft(
    root: NearRoot, step: str
) -> None:
    path = root.write("etc/own.conf", "old\n")
    mark(path)
    was, host = beside(path), Host(str(root.path))
    state = remember_file(host, "/etc/own.conf")
    text = base64.b64encode(b"other\n").decode()

    def fail(*given: object, **more: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    root.patch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output"):
        restore_file(host, "/etc/own.conf", state._replace(content=text))
    root.patch.undo()
    assert beside(path) == was
    with opened(str(root.path), "/etc") as directory:
        assert not directory.drafts("own.conf")
