# SPDX-License-Identifier: Apache-2.0
"""The kernel, pool and services of one host with FreeBSD, and the programs that reach them.

What the programs print has the form of FreeBSD's own sources (releng/13 and releng/14: sbin/sysctl,
sbin/bectl, sbin/kldload, sbin/kldstat, sbin/kldunload, sbin/ifconfig, usr.bin/netstat,
usr.bin/vmstat, usr.sbin/service). They share no code with the host agent. All that they know is in
files below ROOT/stub, so it outlives a process that is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

from lab.simulated.scripts import Answer

WRITABLE, TUNABLE, FIXED, BOTH = "writable", "tunable", "fixed", "both"
"""What may change a parameter: sysctl(8), the boot loader, nobody, or either."""

STACKS = {"tcp_rack": "rack", "tcp_bbr": "bbr"}
CARD = "dev.mce.0"
CHANNELS = f"{CARD}.hw_ctx_debug"
MOUNT_POINT = "var/lib/edgetune/boot_environment"
DEFAULTS = {"nice": "0", "cpuset": "0-7", "limits": "-B -n 1048576"}
REBOOT_MARK = "stub/reboots"
COUNTED = "stub/counted.json"

Kernel = dict[str, Any]


class Machine:
    """What outlives its processes: `kernel` until the next boot, `pool` and `services` longer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, what: str, known: Kernel) -> None:
        """Write one of the three in one step."""
        file = self.path / f"stub/{what}.new"
        file.write_text(json.dumps(known), encoding="utf-8")
        file.replace(self.path / f"stub/{what}.json")

    def known(self, what: str) -> Kernel:
        """Read one of the three."""
        known: Kernel = json.loads((self.path / f"stub/{what}.json").read_text(encoding="utf-8"))
        return known

    def environment(self, name: str) -> Path:
        """Where the files of a boot environment are while it is mounted nowhere."""
        return self.path / "stub/environments" / name

    def create(self, name: str) -> None:
        """Fill a boot environment as bectl(8) does, from what runs: it has what runs this."""
        interpreter = self.environment(name) / sys.executable[1:]
        interpreter.parent.mkdir(parents=True)
        interpreter.touch(0o755)

    def text(self, name: str) -> str:
        """A file of what a program prints."""
        return (self.path / "stub" / name).read_text(encoding="utf-8")

    @property
    def parameters(self) -> dict[str, tuple[str, str]]:
        """What may change each parameter, and its value when the kernel starts."""
        rows = [line.split(" ", 2) for line in self.text("parameters.txt").splitlines()]
        return {name: (access, value) for name, access, value in rows if name != "#"}

    def boot(self) -> None:
        """As the boot loader does, which reads its files, and as a kernel that starts."""
        pool = self.known("pool")
        running = pool.pop("once", "") or pool["default"]
        self.keep("pool", {**pool, "running": running, "mounts": {}})
        shutil.rmtree(self.path / MOUNT_POINT, ignore_errors=True)
        environment = dict(self._loader_files())
        known = self.parameters
        parameters = {name: value for name, (_, value) in known.items()}
        parameters["kern.hostname"] = self.rc_variable("hostname")
        for name, value in environment.items():
            if known.get(name, (FIXED, ""))[0] in (TUNABLE, BOTH):
                parameters[name] = value
        loaded = [name[: -len("_load")] for name, on in environment.items() if on == "YES"]
        kernel = {"boot_id": os.urandom(16).hex(), "parameters": parameters}
        self.keep("kernel", {**kernel, "environment": environment, "modules": loaded, "busy": []})

    def _loader_files(self) -> Iterator[tuple[str, str]]:
        directory = sorted((self.path / "boot/loader.conf.d").glob("*.conf"))
        files = [self.path / "stub/firmware.txt"]
        files += [self.path / f"boot/loader.conf{end}" for end in ("", ".local")]
        for file in (*files, *directory):
            if file.exists():
                yield from re.findall(r'^([a-z][^\s=]*)="([^"]*)"', file.read_text(), re.MULTILINE)

    def rc_variable(self, name: str) -> str:
        """Of /etc/rc.conf, "" for none."""
        text = (self.path / "etc/rc.conf").read_text(encoding="utf-8")
        found = re.findall(rf'^{name}="(.*)"$', text, re.MULTILINE)
        return str(found[-1]) if found else ""

    def read_sysctl_conf(self) -> None:
        """As rc(8) does, twice in each boot."""
        for name in ("sysctl.conf", "sysctl.conf.local"):
            file = self.path / "etc" / name
            for line in file.read_text().splitlines() if file.exists() else []:
                if re.match("[a-z]", line):
                    Programs(self).answer("sysctl", "-i", line)

    def start(self, service: str) -> None:
        """(Re)start one: only now it takes up its variables, and the length of its accept queue."""
        own = self.path / "etc/rc.conf.d" / service
        files = [
            self.path / "etc/rc.conf",
            *sorted(own.glob("*")),
            *([own] if own.is_file() else []),
        ]
        said = dict(DEFAULTS, queue=self.known("kernel")["parameters"]["kern.ipc.soacceptqueue"])
        for file in files:
            said.update(re.findall(rf'^{service}_(\w+)="(.*)"$', file.read_text(), re.MULTILINE))
        self.keep("services", {**self.known("services"), service: said})


class Programs:
    """What each program answers; nothing else is there."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def answer(self, program: str, *words: str) -> Answer:
        """Run one."""
        answer: Answer = getattr(self, f"_{program}")(*words)
        return answer

    def _sysctl(self, *words: str) -> Answer:
        options = "".join(word[1:] for word in words if word[0] == "-")
        kernel, output = self._machine.known("kernel"), ""
        for name in (word for word in words if word[0] != "-"):
            name, sets, value = name.partition("=")
            if name in self._special and name not in self._unborn(kernel):
                output += self._special[name](kernel, options)
                continue
            if name not in kernel["parameters"]:
                below = [own for own in kernel["parameters"] if own.startswith(f"{name}.")]
                output += "".join(
                    self._shown(options, own, kernel["parameters"][own]) for own in below
                )
                if not below and "i" not in options:
                    return 1, output, f"sysctl: unknown oid '{name}'\n"
                continue
            if sets:
                complaint = self._set(kernel, name, value)
                if complaint:
                    return 1, "", f"sysctl: {complaint}\n"
            output += self._shown(options, name, {**kernel["parameters"], **self._counted()}[name])
        return 0, output, ""

    def _counted(self) -> dict[str, str]:
        """Parameters that count, where something does."""
        file = self._machine.path / COUNTED
        counted: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        return counted

    def _access(self, name: str) -> str:
        return self._machine.parameters.get(name, (WRITABLE, ""))[0]

    def _set(self, kernel: Kernel, name: str, value: str) -> str:
        """Set a parameter; what sysctl(8) complains of, else ""."""
        access = self._access(name)
        if access == TUNABLE:
            return f"oid '{name}' is a read only tunable"
        if access == FIXED:
            return f"oid '{name}' is read only"
        if kernel["parameters"][name].isdigit() and not value.isdigit():
            return f"invalid integer '{value}'"
        known = ["freebsd", *(STACKS[own] for own in kernel["modules"] if own in STACKS)]
        if name == "net.inet.tcp.functions_default" and value not in known:
            return f"{name}={value}: No such file or directory"
        if name == "net.inet.tcp.mssdflt" and not 48 <= int(value) <= 65535:
            return f"{name}={value}: Invalid argument"
        if name == f"{CARD}.conf.channels":
            value = str(min(max(int(value), 1), int(kernel["parameters"]["hw.ncpu"])))
        kernel["parameters"][name] = value
        self._machine.keep("kernel", kernel)
        return ""

    def _shown(self, options: str, name: str, value: str) -> str:
        access = self._access(name)
        left_out = ("W" in options and access not in (WRITABLE, BOTH)) or (
            "T" in options and access not in (TUNABLE, BOTH)
        )
        if left_out:
            return ""
        return (
            f"{name}\n"
            if "N" in options
            else f"{value if 'n' in options else f'{name}: {value}'}\n"
        )

    def _unborn(self, kernel: Kernel) -> list[str]:
        """What releases before 13 do not have, and what mlx5en(4) does not tell by itself."""
        known = kernel["parameters"]
        old = ["kern.boot_id"] if known["kern.osrelease"].startswith("12.") else []
        return old + ([CHANNELS] if known.get(f"{CARD}.conf.debug_stats") != "1" else [])

    @property
    def _special(self) -> dict[str, Callable[[Kernel, str], str]]:
        return {
            "kern.boot_id": self._boot_id,
            "net.inet.tcp.functions_available": self._stacks,
            CHANNELS: self._channels,
        }

    def _channels(self, kernel: Kernel, options: str) -> str:
        """As sys/dev/mlx5/mlx5_en/mlx5_en_ethtool.c prints them."""
        text = "pages irq 99\ncommand irq 100\nasync irq 101\n"
        for own in range(int(kernel["parameters"][f"{CARD}.conf.channels"])):
            text += f"channel {own} rq {131 + 3 * own} cq {17 + 2 * own} irq {102 + own}\n"
            text += f"channel {own} tc 0 sq {130 + 3 * own} cq {16 + 2 * own} irq {102 + own}\n"
        return f"{CHANNELS}: {text}\n"

    def _boot_id(self, kernel: Kernel, options: str) -> str:
        """Without -x it is not shown."""
        return f"Format: Length:16 Dump:0x{kernel['boot_id']}\n" if "x" in options else ""

    def _stacks(self, kernel: Kernel, options: str) -> str:
        default = kernel["parameters"]["net.inet.tcp.functions_default"]
        text = "\nStack                           D Alias                            PCB count\n"
        for name in ["freebsd", *(STACKS[own] for own in kernel["modules"] if own in STACKS)]:
            mark = "*" if name == default else " "
            text += f"{name:<32}{mark} {name:<32} 3\n"
        return text + "\n"

    def _kenv(self, quiet: str, name: str) -> Answer:
        assert quiet == "-q"
        value = self._machine.known("kernel")["environment"].get(name)
        return (1, "", "") if value is None else (0, f"{value}\n", "")

    def _kldload(self, option: str, name: str) -> Answer:
        assert option == "-n"
        kernel = self._machine.known("kernel")
        if not (self._machine.path / f"boot/kernel/{name}.ko").exists():
            return 1, "", f"kldload: can't load {name}: No such file or directory\n"
        if name not in kernel["modules"]:
            self._machine.keep("kernel", {**kernel, "modules": [*kernel["modules"], name]})
        return 0, "", ""

    def _kldunload(self, name: str) -> Answer:
        kernel = self._machine.known("kernel")
        default = kernel["parameters"]["net.inet.tcp.functions_default"]
        if name in kernel["busy"] or STACKS.get(name) == default:
            return 1, "", "kldunload: can't unload file: Device busy\n"
        if name not in kernel["modules"]:
            return 1, "", f"kldunload: can't find file {name}: No such file or directory\n"
        kernel["modules"].remove(name)
        self._machine.keep("kernel", kernel)
        return 0, "", ""

    def _kldstat(self, quiet: str, option: str, name: str) -> Answer:
        assert quiet == "-q" and option in ("-n", "-m")
        loaded = option == "-n" and name in self._machine.known("kernel")["modules"]
        return 0 if loaded else 1, "", ""

    def _sysrc(self, *words: str) -> Answer:
        assert words == ("-n", "-i", "kld_list")
        found = self._machine.rc_variable("kld_list")
        return 0, f"{found}\n" if found else "", ""

    def _bectl(self, verb: str, *words: str) -> Answer:
        pool = self._machine.known("pool")
        if verb == "list":
            flags = dict.fromkeys(pool["names"], "")
            for flag, which in (("N", "running"), ("R", "default"), ("T", "once")):
                if pool.get(which):
                    flags[pool[which]] += flag
            rows = [
                f"{name}\t{own or '-'}\t{self._mounted(name, own)}\t8.1G\t"
                f"{pool.get('created', {}).get(name, '2026-03-01 10:00')}\n"
                for name, own in flags.items()
            ]
            return 0, "".join(rows), ""
        if verb == "activate" and words == ("-T",):
            pool.pop("once", None)
            self._machine.keep("pool", pool)
            return 0, "Temporary activation removed\n", ""
        name = words[0] if verb in ("mount", "umount") else words[-1]
        if name not in pool["names"]:
            return 1, f"Did not successfully {verb} boot environment {name}\n", ""
        if verb in ("mount", "umount"):
            return self._mount(verb, words, pool)
        pool["once" if words[0] == "-t" else "default"] = name
        self._machine.keep("pool", pool)
        return 0, f"Successfully activated boot environment {name}\n", ""

    def _mounted(self, name: str, flags: str) -> str:
        return "/" if "N" in flags else str(self._machine.known("pool")["mounts"].get(name, "-"))

    def _mount(self, verb: str, words: tuple[str, ...], pool: Kernel) -> Answer:
        """What a boot environment holds is in ROOT/stub/NAME, or where it is mounted."""
        name, own = words[0], self._machine.environment(words[0])
        old, new = (own.with_name(f"{name}.{age}") for age in ("old", "new"))
        if (name in pool["mounts"]) == (verb == "mount"):
            return 1, "", f"Failed to {verb} bootenv {name}\n"
        # By itself below /tmp, which is everybody's.
        place = (*words, f"/tmp/be_mount.{name}")[1] if verb == "mount" else pool["mounts"][name]
        at = self._machine.path / place[1:]
        if verb == "umount":
            # All of it or nothing, as ZFS does, also where the power fails in between.
            for left in (old, new):
                shutil.rmtree(left, ignore_errors=True)
            shutil.copytree(at, new, symlinks=True)
            own.rename(old)
            new.rename(own)
            shutil.rmtree(old)
            for entry in at.iterdir():
                shutil.rmtree(entry)
            del pool["mounts"][name]
        else:
            if not own.exists():  # the power failed between the two names
                new.rename(own)
            shutil.copytree(own, at, symlinks=True, dirs_exist_ok=True)
            pool["mounts"][name] = place
        self._machine.keep("pool", pool)
        return 0, f"Successfully mounted {name} at {place}\n" if verb == "mount" else "", ""

    def _zfs(self, *words: str) -> Answer:
        assert words[:4] == ("list", "-H", "-o", "name")
        pool = self._machine.known("pool")
        apart = pool.get("apart", True) and words[4].startswith("/var/lib")
        return 0, "zroot/lib\n" if apart else f"zroot/ROOT/{pool['running']}\n", ""

    def _ifconfig(self, *words: str) -> Answer:
        assert words == ("-a",)
        return 0, self._machine.text("ifconfig.txt"), ""

    def _route(self, *words: str) -> Answer:
        assert words[:2] == ("-n", "get") and words[3] == "default"
        if words[2] == "-inet6":
            return 1, "", "route: route has not been found\n"
        return 0, "   route to: 0.0.0.0\ndestination: 0.0.0.0\n    gateway: 192.0.2.1\n", ""

    def _netstat(self, *words: str) -> Answer:
        files = {
            "-anW -p tcp": "connections.txt",
            "-ibdn": "links.txt",
            "--libxo json -s -p tcp": "tcp.json",
        }
        return 0, self._machine.text(files[" ".join(words)]), ""

    def _vmstat(self, *words: str) -> Answer:
        files = {"-ai": "interrupts.txt", "-z": "zones.txt"}
        return 0, self._machine.text(files[" ".join(words)]), ""

    def _cpuset(self, *words: str) -> Answer:
        if words == ("-g", "-p", "77"):
            first, _, last = self._of_nginx("cpuset").partition("-")
            own = range(int(first), int(last or first) + 1)
            return 0, f"pid 77 mask: {', '.join(map(str, own))}\n", ""
        kernel = self._machine.known("kernel")
        cpus = list(range(int(kernel["parameters"]["hw.ncpu"])))
        if "-x" in words:
            return self._cpuset_of_irq(kernel, cpus, words)
        assert words[:2] == ("-g", "-d")
        near = [cpu for cpu in cpus if self._domain(kernel, cpu) == int(words[2])]
        return 0, f"domain {words[2]} mask: {', '.join(map(str, near))}\n", ""

    def _domain(self, kernel: Kernel, cpu: int) -> int:
        """Each has as many neighbouring CPUs."""
        count = int(kernel["parameters"]["vm.ndomains"])
        return cpu * count // int(kernel["parameters"]["hw.ncpu"])

    def _cpuset_of_irq(self, kernel: Kernel, cpus: list[int], words: tuple[str, ...]) -> Answer:
        irq = words[-1]
        if f"irq{irq}:" not in self._machine.text("interrupts.txt"):
            return 1, "", "cpuset: getaffinity: No such process\n"
        if words[0] == "-g":
            own = kernel.get("irqs", {}).get(irq, cpus)
            return 0, f"irq {irq} mask: {', '.join(map(str, own))}\n", ""
        ranges = [part.partition("-") for part in words[1].split(",")]
        wanted = [cpu for low, _, high in ranges for cpu in range(int(low), int(high or low) + 1)]
        if not set(wanted) <= set(cpus):
            return 1, "", "cpuset: setaffinity: Invalid argument\n"
        self._machine.keep("kernel", {**kernel, "irqs": {**kernel.get("irqs", {}), irq: wanted}})
        return 0, "", ""

    def _of_nginx(self, name: str) -> str:
        return str(self._machine.known("services")["nginx"][name])

    def _ps(self, *words: str) -> Answer:
        assert words == ("-o", "nice=", "-p", "77")
        return 0, f" {self._of_nginx('nice')}\n", ""

    def _procstat(self, *words: str) -> Answer:
        assert words == ("--libxo", "json", "rlimit", "77")
        limit = self._of_nginx("limits").split()[-1]
        told = {"process_id": 77, "openfiles": {"soft_limit": limit, "hard_limit": limit}}
        return 0, json.dumps({"procstat": {"rlimit": {"77": told}}}), ""

    def _service(self, name: str, verb: str) -> Answer:
        services = self._machine.known("services")
        if name not in services:
            return 1, "", f"{name} does not exist in /etc/rc.d or the local startup directories\n"
        if verb == "restart":
            self._machine.start(name)
        runs = self._machine.known("services")[name] is not None
        told = f"{name} is running as pid 77.\n" if runs else f"{name} is not running.\n"
        return (0 if runs else 1), told, ""

    def _shutdown(self, *words: str) -> Answer:
        assert words == ("-r", "now")
        (self._machine.path / REBOOT_MARK).touch()
        return 0, "Shutdown NOW!\n", ""


NAMES = (
    *("sysctl", "kenv", "kldload", "kldunload", "kldstat", "sysrc", "bectl", "zfs", "ifconfig"),
    *("route", "netstat", "vmstat", "cpuset", "ps", "procstat", "service", "shutdown"),
)
