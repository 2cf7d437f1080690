# SPDX-License-Identifier: Apache-2.0
"""ethtool, ip, reboot and systemctl of a simulated host: just enough for the host agent.

They touch nothing outside of the root of their host: `reboot` leaves a mark there, which the lab
looks for.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from .scripts import Answer

QUEUES = 4
NGINX = "run/nginx.json"
REBOOT_MARK = "run/reboot-wanted"
BUSY_MARK = "run/busy"
ADDRESS = "etc/address"
NIC_QUEUES = "sys/class/net/eth0/queues"
STEERING = {"rx": "rps_cpus", "tx": "xps_cpus"}
RING = ("rx", "tx")
ENTRIES = 256
RING_KEPT = "run/ring.json"
NGINX_PID = "77"
PROCESS = {
    "limits": "Max open files            {soft:<20} {hard:<20} files\n",
    "status": "Name:\tnginx\nCpus_allowed_list:\t{cpus}\n",
    "stat": NGINX_PID + " (nginx) S 1" + " 0" * 13 + " 20 {nice} 1\n",
}
PROPERTIES = {"LimitNOFILE": "1024:524288", "CPUAffinity": "", "Nice": "0"}


class Refusal(Exception):
    """What the real program would not do either; the text is its message."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def ethtool(root: Path, arguments: Sequence[str]) -> None:
    """-i, -S, -g, -G, -l and -L of eth0, whose channels are its queues in /sys."""
    option, interface, *values = [*arguments, "", ""][: max(2, len(arguments))]
    if interface != "eth0":
        raise Refusal("netlink error: No such device")
    if option in ("-i", "--driver"):
        print("driver: virtio_net\nversion: 1.0.0")
    elif option in ("-S", "--statistics"):
        print("NIC statistics:")
        print("".join(f"     rx_queue_{number}_drops: 0\n" for number in range(QUEUES)), end="")
    elif option in ("-g", "--show-ring"):
        _show_ring(root)
    elif option in ("-G", "--set-ring"):
        _set_ring(root, _pairs(values, RING, ENTRIES, "ring size exceeds maximum"))
    elif option in ("-l", "--show-channels"):
        _show_channels(root)
    elif option in ("-L", "--set-channels"):
        make_queues(root, _pairs(values, STEERING, QUEUES, "channel count exceeds maximum"))
    else:
        raise Refusal("netlink error: Operation not supported")


def ip(root: Path, arguments: Sequence[str]) -> None:
    """-o address show, and -j route show default: there is none."""
    if list(arguments) == ["-j", "route", "show", "default"]:
        print("[ ]")
        return
    if list(arguments) != ["-o", "address", "show"]:
        raise Refusal("Object is unknown")
    print("1: lo    inet 127.0.0.1/8 scope host lo")
    print(f"2: eth0    inet {(root / ADDRESS).read_text().strip()}/24 scope global eth0")


def _show_ring(root: Path) -> None:
    kept = root / RING_KEPT
    now = json.loads(kept.read_text()) if kept.exists() else dict.fromkeys(RING, ENTRIES)
    print("Ring parameters for eth0:")
    for title, own in (
        ("Pre-set maximums:", dict.fromkeys(RING, ENTRIES)),
        ("Current hardware settings:", now),
    ):
        print(f"{title}\nRX:\t\t{own['rx']}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{own['tx']}")


def _set_ring(root: Path, wanted: Mapping[str, int]) -> None:
    kept = root / RING_KEPT
    now = json.loads(kept.read_text()) if kept.exists() else dict.fromkeys(RING, ENTRIES)
    kept.write_text(json.dumps({**now, **wanted}))


def _show_channels(root: Path) -> None:
    now = {kind: len(list((root / NIC_QUEUES).glob(f"{kind}-*"))) for kind in STEERING}
    print("Channel parameters for eth0:")
    for title, rx, tx in (
        ("Pre-set maximums:", QUEUES, QUEUES),
        ("Current hardware settings:", now["rx"], now["tx"]),
    ):
        print(f"{title}\nRX:\t\t{rx}\nTX:\t\t{tx}\nOther:\t\tn/a\nCombined:\tn/a")


def _pairs(words: Sequence[str], names: Collection[str], most: int, beyond: str) -> dict[str, int]:
    """The numbers that ethtool is to set, by name: 1 to `most`."""
    wanted = dict(zip(words[::2], words[1::2]))
    if len(words) % 2 or not wanted or not all(word.isdigit() for word in wanted.values()):
        raise Refusal("ethtool: bad command line argument(s)")
    if not {*wanted} <= {*names}:
        raise Refusal("netlink error: requested channel type is not supported")
    if not all(1 <= int(count) <= most for count in wanted.values()):
        raise Refusal(f"netlink error: requested {beyond}")
    return {kind: int(count) for kind, count in wanted.items()}


def make_queues(root: Path, counts: Mapping[str, int]) -> None:
    """Give eth0 that many "rx" or "tx" queues; new ones steer no packets (all zero)."""
    for kind, count in counts.items():
        for number in range(QUEUES):
            queue = root / NIC_QUEUES / f"{kind}-{number}"
            if number >= count:
                shutil.rmtree(queue, ignore_errors=True)
            elif not queue.exists():
                queue.mkdir(parents=True)
                (queue / STEERING[kind]).write_text("0\n")


def reboot(root: Path, arguments: Sequence[str]) -> None:
    """Ask the lab for a boot of this host."""
    (root / REBOOT_MARK).touch()


def systemctl(root: Path, arguments: Sequence[str]) -> None:
    """show, restart and is-active of nginx; daemon-reload; reboot."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if verb in ("daemon-reload", "reboot"):
        if verb == "reboot":
            reboot(root, rest)
        return
    name, unit = _property_and_unit(rest)
    if unit.replace(".service", "") != "nginx":
        raise Refusal(f"Unit {unit} could not be found.")
    if verb == "restart":
        start_nginx(root)
    elif verb == "is-active":
        _is_active(root)
    elif verb == "show" and name:
        value = _show(root, name)
        print(value if "--value" in rest else f"{name}={value}")
    else:
        raise Refusal(f"Unknown command verb '{verb}'.")


def _is_active(root: Path) -> None:
    active = backlog(root) is not None
    print("active" if active else "inactive")
    if not active:
        raise Refusal("", status=3)


def _property_and_unit(words: Sequence[str]) -> tuple[str, str]:
    """From `-p NAME --value UNIT` in any order; also -pNAME, --property NAME, --property=NAME."""
    name, unit, expected = "", "", False
    for word in words:
        if expected:
            name, expected = word, False
        elif word in ("-p", "--property"):
            expected = True
        elif word.startswith("-p"):
            name = word[2:]
        elif word.startswith("--property="):
            name = word.partition("=")[2]
        elif not word.startswith("-"):
            unit = word
    return name, unit


def _show(root: Path, name: str) -> str:
    """What the running nginx has; of a limit SOFT:HARD the hard one, or LimitNAMESoft."""
    running = backlog(root) is not None
    state = {
        "ActiveState": "active" if running else "inactive",
        "MainPID": NGINX_PID if running else "0",
    }
    if not (root / NGINX).exists():
        return state.get(name, "")
    known = {**state, **json.loads((root / NGINX).read_text())["properties"]}
    if name.startswith("Limit") and name.endswith("Soft"):
        return str(known.get(name[: -len("Soft")], "")).partition(":")[0]
    value = str(known.get(name, ""))
    return value.rpartition(":")[2] if name.startswith("Limit") else value


def start_nginx(root: Path) -> None:
    """(Re)start it: only now it takes up its drop-ins and the length of its accept queue."""
    somaxconn = (root / "proc/sys/net/core/somaxconn").read_text().strip()
    if not somaxconn.isdigit():
        raise Refusal("Job for nginx.service failed: net.core.somaxconn is no number.")
    properties = dict(PROPERTIES)
    for path in sorted((root / "etc/systemd/system/nginx.service.d").glob("*.conf")):
        for line in path.read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and key[0] not in "#;":
                properties[key.strip()] = value.strip() or PROPERTIES.get(key.strip(), "")
    _show_process(root, properties)
    new = root / f"{NGINX}.new"
    new.write_text(json.dumps({"backlog": int(somaxconn), "properties": properties}))
    new.replace(root / NGINX)


def _show_process(root: Path, properties: Mapping[str, str]) -> None:
    """What /proc tells of the main process of nginx: there the host agent looks."""
    soft, _, hard = properties["LimitNOFILE"].partition(":")
    own = {
        "soft": soft,
        "hard": hard or soft,
        "cpus": properties["CPUAffinity"]
        or (root / "sys/devices/system/cpu/online").read_text().strip(),
        "nice": properties["Nice"],
    }
    directory = root / "proc" / NGINX_PID
    directory.mkdir(exist_ok=True)
    for name, text in PROCESS.items():
        (directory / name).write_text(text.format(**own))


def backlog(root: Path) -> int | None:
    """The length of nginx' accept queue, None while it does not run."""
    if not (root / NGINX).exists():
        return None
    length: int = json.loads((root / NGINX).read_text())["backlog"]
    return length


COMMANDS = {"ethtool": ethtool, "ip": ip, "reboot": reboot, "systemctl": systemctl}


def answer(root: Path, name: str, words: Sequence[str]) -> Answer:
    """Carry one out."""
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            COMMANDS[name](root, words)
    except Refusal as refusal:
        text = str(refusal)
        return refusal.status, output.getvalue(), f"{text}\n" if text else ""
    return 0, output.getvalue(), ""
