# SPDX-License-Identifier: Apache-2.0
"""Whether a host and the system behind a BMC are the same machine, by what each tells of itself."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from edgetune.net.bmc.payload import text_at

# What firmware tells where nobody wrote anything.
_FILLERS = (
    "to be filled by o.e.m.",
    "default string",
    "system serial number",
    "not specified",
    "none",
    "0123456789",
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
)


_HERE = {"UUID": "uuid", "serial": "serial"}
_THERE = {"UUID": "system", "serial": "serial", "SKU": "sku"}


def mismatch(machine: object, system: object) -> str | None:
    """Why they are two machines, or None: something matches, or one side tells nothing.

    ``machine`` is what the agent tells, ``{uuid, serial}``, and ``system`` what the BMC tells,
    ``{system, serial, sku}``. The SKU of a Dell is its service tag, which DMI has as the serial.
    """
    here, there = _read_names(machine, _HERE), _read_names(system, _THERE)
    if not here or not there or _same_uuid(here, there) or _same_serial(here, there):
        return None
    return f"the host is {_shown(here)}, and that BMC's machine {_shown(there)}"


def matches(machine: object, system: object) -> bool:
    """Whether something that both tell shows that they are one machine."""
    here, there = _read_names(machine, _HERE), _read_names(system, _THERE)
    return _same_uuid(here, there) or _same_serial(here, there)


def is_named(name: str, system: object) -> bool:
    """Whether a UUID or serial number that somebody wrote down is one that the BMC tells."""
    stated = _read_names(system, _THERE)
    return bool(name) and name.lower() in (text.lower() for text in stated.values())


def uuid_of(machine: object) -> str:
    """The UUID that the agent tells, in lower case; "" where nobody wrote one."""
    return _read_names(machine, _HERE).get("UUID", "").lower()


def _read_names(data: object, names: Mapping[str, str]) -> dict[str, str]:
    shown = {what: text_at(data, name).strip() for what, name in names.items()}
    return {what: text for what, text in shown.items() if not _is_filler(text)}


def _is_filler(text: str) -> bool:
    digits = set(text.lower()) - set(" -")
    return digits <= {"0"} or digits == {"f"} or text.lower() in _FILLERS


def _same_uuid(here: Mapping[str, str], there: Mapping[str, str]) -> bool:
    reported, other = here.get("UUID", ""), there.get("UUID", "")
    return bool(reported) and other.lower() in (reported.lower(), _swapped(reported))


def _swapped(text: str) -> str:
    """With the first three fields in the other byte order, as SMBIOS before 2.6 left it open."""
    try:
        return str(uuid.UUID(bytes_le=uuid.UUID(text).bytes))
    except ValueError:
        return text.lower()


def _same_serial(here: Mapping[str, str], there: Mapping[str, str]) -> bool:
    serial = here.get("serial", "").lower()
    return bool(serial) and serial in {there.get(name, "").lower() for name in ("serial", "SKU")}


def _shown(names: Mapping[str, str]) -> str:
    return ", ".join(f"{what} {text}" for what, text in names.items())
