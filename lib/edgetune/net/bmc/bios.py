# SPDX-License-Identifier: Apache-2.0
"""The BIOS of one machine: what is current, and what is pending for its next boot.

``Attributes`` of the settings object are all that will be (HPE, Lenovo, AMI) or only what will
change (Dell); pending is, in both, what stands there and differs from the current value.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgetune.base.dataclass import dataclass
from edgetune.net.bmc.answers import Answer, Values
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.jobs import Jobs
from edgetune.net.bmc.payload import (
    BmcError,
    at,
    is_bad,
    is_secret,
    link_at,
    list_at,
    messages_of,
    said,
    same,
    text_at,
)
from edgetune.net.bmc.registry import Registry
from edgetune.net.bmc.system import (
    bios_link,
    find_registry,
    likely_registries,
    manager_links,
    reset_info,
    settings_link,
)

NO_SETTINGS = "the BMC shows the BIOS of this machine, but takes no settings for it"
# What is beside the attributes in the resource of a Gen9, which has them at its top.
_NO_ATTRIBUTES = ("Id", "Name", "Type", "Description", "AttributeRegistry", "Modified")
_MOST_MESSAGES = 10


@dataclass(frozen=True)
class State:
    """One look at a BIOS; texts in it are fit to be shown."""

    bios: Answer
    settings: Answer | None
    current: Values
    pending: Values

    @property
    def version(self) -> str | None:
        """The etag of the settings object, if it has any."""
        return self.settings.etag if self.settings else None

    def next(self, name: str) -> object:
        """What the next boot makes of an attribute."""
        return self.pending.get(name, self.current.get(name))

    def fits(self, wanted: Values) -> bool:
        """Whether the next boot makes all of it so."""
        return all(same(self.next(name), value) for name, value in wanted.items())

    def foreign(self, *ours: Values) -> list[str]:
        """What is pending and none of ours, each as one text."""
        return [
            name if is_secret(name) else f"{name} ({said(self.current.get(name))} -> {said(value)})"
            for name, value in self.pending.items()
            if not any(name in values and same(values[name], value) for values in ours)
        ]

    def refuse_foreign(self, *ours: Values) -> None:
        """BmcError ``refused`` if somebody else's changes would ride along."""
        foreign = self.foreign(*ours)
        if foreign:
            text = ", ".join(foreign)
            raise BmcError("refused", f"changes of somebody else wait for the next boot: {text}")

    def part(self, names: Iterable[str]) -> dict[str, dict[str, object]]:
        """``{current, pending}`` of these attributes."""
        return {
            "current": {name: self.current.get(name) for name in names},
            "pending": {name: self.pending[name] for name in names if name in self.pending},
        }

    def complaints(self, names: Iterable[str], by_name: bool = False) -> list[str]:
        """What the BIOS said against the last settings, if about these or about none by name."""
        result = at(self.bios.data, "@Redfish.Settings") or at(self.bios.data, "SettingsResult")
        ours, others = set(names), set(self.current) - set(names)
        bad = [
            message.text
            for message in messages_of(result)
            if is_bad(message) and (ours & message.about or not (by_name or others & message.about))
        ]
        return bad[:_MOST_MESSAGES]


class Bios:
    """The BIOS of one system, over one conversation."""

    def __init__(self, client: Client, system: Answer) -> None:
        self.client = client
        self.jobs = Jobs(client, system)
        self._system = system
        self._link = bios_link(system)

    def read_ahead(self, planning: bool = False) -> None:
        """Ask at once for what `read`, the jobs, and ``planning`` need, in two rounds.

        A BMC takes up to two seconds for each answer.
        """
        registries = link_at(self.client.root, "Registries") if planning else ""
        links = [self._link, *manager_links(self._system), registries]
        answers = self.client.read_ahead(links)
        bios, collection = answers.get(self._link), answers.get(registries)
        second = [self.jobs.link, reset_info(self._system) if planning else ""]
        second += [settings_link(bios)] if bios else []
        second += likely_registries(bios, collection) if bios and collection else []
        self.client.read_ahead(second)

    def read(self) -> State:
        """Current and pending, now."""
        bios = self.client.get(self._link)
        current = _attributes(bios)
        if current is None:
            raise BmcError("refused", "the BMC shows no attributes of this BIOS over Redfish")
        settings = self._settings(bios)
        shown = _pending(settings, bios) if settings else {}
        pending = {
            name: value
            for name, value in shown.items()
            if value is not None and not same(value, current.get(name))
        }
        return State(bios, settings, current, pending)

    def _settings(self, bios: Answer) -> Answer | None:
        """The settings object, or None where the BMC takes no settings.

        Firmware of AMI, and that of Intel's boards, may have none until something is set.
        """
        link = settings_link(bios)
        if not link:
            return None
        root, system = self.client.root, self._system.data
        of_ami = at(root, "Oem", "Ami") is not None or at(system, "Oem", "Ami") is not None
        makers = {text_at(root, "Vendor"), text_at(system, "Manufacturer")}
        if not of_ami and not makers & {"AMI", "Intel Corporation"}:
            return self.client.get(link)
        return self.client.find(link) or Answer(link, 404, {}, {"Attributes": {}})

    def refuse_foreign_jobs(self) -> None:
        """BmcError ``refused`` if a reboot would start a job that is not of the BIOS."""
        foreign = self.jobs.foreign()
        if foreign:
            text = ", ".join(foreign)
            raise BmcError("refused", f"jobs of somebody else wait for the next boot: {text}")

    def registry(self, state: State) -> Registry | None:
        """What its attributes may be; None where the BMC has no registry for them."""
        return find_registry(self.client, state.bios)

    def send(self, state: State, values: Values, strong: bool = False) -> Answer:
        """Ask once for these values with the next boot.

        ``strong``: name the version as if it were a strong one. Some BMCs give weak ones and
        take none of them back (openstack/sushy, ``connector.py``).
        """
        if state.settings is None:
            raise BmcError("refused", NO_SETTINGS)
        body: dict[str, object] = dict(values)
        if "Attributes" in state.bios.data:
            body = {"Attributes": body}
        times = list_at(state.bios.data, "@Redfish.Settings", "SupportedApplyTimes")
        if times and "OnReset" not in times:
            raise BmcError("refused", "the BMC takes settings, but none for the next boot only")
        if times:
            body["@Redfish.SettingsApplyTime"] = {
                "@odata.type": "#Settings.v1_1_0.PreferredApplyTime",
                "ApplyTime": "OnReset",
            }
        etag = state.version
        if etag and strong and etag.startswith("W/"):
            etag = etag[2:]
        return self.client.change("PATCH", state.settings.link, body, etag)


def _pending(settings: Answer, bios: Answer) -> dict[str, object]:
    """What a settings object shows: where attributes are absent, null or empty, nothing waits.

    BmcError ``garbage`` for what may be another resource, or says why it shows none.
    """
    is_flat = "Attributes" not in bios.data
    shown = None
    if is_flat or at(settings.data, "Attributes") is not None:
        shown = _attributes(settings) if is_flat != ("Attributes" in settings.data) else None
    elif _is_settings(settings):
        shown = {}
    if shown is None:
        raise BmcError("garbage", f"{said(settings.link)}: Attributes is missing")
    return shown


def _is_settings(answer: Answer) -> bool:
    """Whether it is surely the object that was asked for, whole, though it shows no attributes.

    Its type is that of a BIOS, or of settings (Intel). Null is also the value of what is not known;
    then a message says why (DSP0266, "Extended information").
    """
    data = answer.data
    kind = text_at(data, "@odata.type").rpartition(".")[2]
    is_named = (
        kind in ("Bios", "Settings") if kind else _place(link_at(data)) == _place(answer.link)
    )
    about = {"@Message.ExtendedInfo": at(data, "Attributes@Message.ExtendedInfo")}
    return is_named and not any(map(is_bad, messages_of(data) + messages_of(about)))


def _place(link: str) -> str:
    return link.rstrip("/").lower()


def _attributes(answer: Answer) -> dict[str, object] | None:
    """None where it shows none."""
    data = answer.data
    if "Attributes" in data:
        listed = data["Attributes"]
        if not isinstance(listed, dict):
            raise BmcError("garbage", f"{said(answer.link)}: Attributes is no mapping")
    elif text_at(data, "AttributeRegistry"):
        listed = {name: data[name] for name in data if _is_flat_attribute(name, data[name])}
    else:
        return None
    values = {name: _value(listed[name]) for name in listed}
    for name, value in values.items():
        if isinstance(value, (dict, list)):
            raise BmcError("garbage", f"{said(answer.link)}: Attributes.{said(name)} is no value")
    return {said(n): said(v) if isinstance(v, str) else v for n, v in values.items()}


def _value(shown: object) -> object:
    """An HPE Cray EX shows what may be beside what is."""
    value = at(shown, "current_value")
    return shown if value is None else value


def _is_flat_attribute(name: str, value: object) -> bool:
    return not (name in _NO_ATTRIBUTES or "@" in name or isinstance(value, (dict, list)))
