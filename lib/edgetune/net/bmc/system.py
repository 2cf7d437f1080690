# SPDX-License-Identifier: Apache-2.0
"""From the service root of a BMC to what is about one of its systems; links are followed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.payload import BmcError, at, last_part, link_at, list_at, said, text_at
from edgetune.net.bmc.registry import Registry

# Where POST is, by DSP2046, ComputerSystem.BootProgress: in all other states it is under way.
_NOT_IN_POST = ("", "None", "OSBootStarted", "OSRunning", "OEM")
_MOST_PAGES = 20
# DSP2046 knows 13 kinds of resets.
_MOST_KINDS = 20


def find_system(client: Client, name: str) -> Answer:
    """The system that is called so, or the only one; BmcError ``refused`` names those there are."""
    links = [link_at(member) for member in members(client, link_at(client.root, "Systems"))]
    chosen = [link for link in links if not name or last_part(link) == name]
    if len(chosen) != 1:
        there = ", ".join(map(last_part, links)) or "none"
        what = f"no system {name!r}" if name else "not one system: say which in bmc.system"
        raise BmcError("refused", f"the BMC has {what}; it has: {there}")
    return client.get(chosen[0])


def refuse_another(system: Answer, uuid: str) -> None:
    """BmcError ``refused`` if it is another machine than the one with that UUID ("" is any)."""
    machine = text_at(system.data, "UUID")
    if uuid and machine != uuid:
        raise BmcError("refused", f"the machine is {machine or 'without a UUID'}, not {uuid}")


def members(client: Client, collection: str, if_there: bool = False) -> Iterator[object]:
    """The members of a collection: links, or whole where the BMC gives them so.

    BmcError ``garbage`` if it is not there, unless ``if_there``: then it has none.
    """
    for _ in range(_MOST_PAGES):
        page = collection and (client.find if if_there else client.get)(collection)
        if not page:
            return
        data = page.data
        yield from list_at(data, "Members")
        collection = link_at(data, "Members@odata.nextLink")
    if collection:
        raise BmcError("garbage", f"{said(collection)} has more pages than {_MOST_PAGES}")


def expanded(client: Client) -> str:
    """What to add to the link of a collection to be given its members whole, where that can be.

    DSP0266, "Use of the $expand query parameter"; "" where the service root does not offer it.
    """
    offered = at(client.root, "ProtocolFeaturesSupported", "ExpandQuery")
    if at(offered, "NoLinks") is not True:
        return ""
    return "?$expand=.($levels=1)" if at(offered, "Levels") is True else "?$expand=."


def is_link(member: object) -> bool:
    """Whether a member of a collection is but a link."""
    return isinstance(member, Mapping) and set(member) <= {"@odata.id", "href"}


def whole(client: Client, member: object) -> object:
    """A member of a collection, read if it is but a link; None if it is gone by now."""
    if not is_link(member):
        return member
    answer = client.find(link_at(member))
    return answer.data if answer else None


def bios_link(system: Answer) -> str:
    """Where the current settings of its BIOS are; BmcError if Redfish does not reach them.

    An iLO 4 has the link among its own (proliantutils, ``ilo/ris.py``).
    """
    oem = at(system.data, "Oem", "Hp")
    link = (
        link_at(system.data, "Bios")
        or link_at(oem, "Links", "BIOS")
        or link_at(oem, "links", "BIOS")
    )
    if not link:
        raise BmcError("refused", "the BMC does not show the BIOS of this system over Redfish")
    return link


def settings_link(bios: Answer) -> str:
    """Where settings for the next boot go, or "" where the BIOS is only shown."""
    data = bios.data
    return (
        link_at(data, "@Redfish.Settings", "SettingsObject")
        or link_at(data, "Links", "Settings")
        or link_at(data, "links", "Settings")
    )


def find_registry(client: Client, bios: Answer) -> Registry | None:
    """The registry of the attributes of a BIOS, or None where the BMC has none of that name.

    A BIOS of NVIDIA's OpenBMC names none; then it is the only one for a BIOS that there is.
    """
    name = _spelt(text_at(bios.data, "AttributeRegistry"))
    registries = link_at(client.root, "Registries")
    links = [link_at(member) for member in members(client, registries, if_there=True)]
    likely = _likely(links, name)
    if not name and len(likely) != 1:
        return None
    for link in likely:
        file = client.find(link)
        for place in _locations(file.data) if file else []:
            listed = client.find(place)
            if listed and (not name or name in _names(link, file, listed)):
                return Registry(listed.data)
    return None


def likely_registries(bios: Answer, collection: Answer) -> list[str]:
    """Where `find_registry` looks first, going by the first page of the registries."""
    links = [link_at(member) for member in list_at(collection.data, "Members")]
    return _likely(links, _spelt(text_at(bios.data, "AttributeRegistry")))[:1]


def _likely(links: list[str], name: str) -> list[str]:
    """Links that may lead to the registry, the likeliest first: each costs two requests."""
    exact = [link for link in links if name and _spelt(_bare(link)) == name]
    bios = [link for link in links if "biosattributeregistry" in link.lower()]
    return exact or bios


def _locations(file: object) -> list[str]:
    places = list_at(file, "Location")
    english = [place for place in places if text_at(place, "Language").startswith("en")]
    links = [link_at(place, "Uri") for place in english or places]
    return [link for link in links if link][:1]


def _names(link: str, file: Answer | None, registry: Answer) -> set[str]:
    below = file.data if file else {}
    texts = (text_at(below, "Registry"), text_at(below, "Id"), text_at(registry.data, "Id"))
    return {_spelt(text) for text in (_bare(link), *texts)}


def _spelt(name: str) -> str:
    """A name in one spelling: a Supermicro has ``.v1_0_0``, ``.1.0.0`` and ``.1_0_0`` for one."""
    return re.sub(r"[._]v?(?=\d)", ".", name)


def _bare(link: str) -> str:
    name = last_part(link)
    return name[: -len(".json")] if name.endswith(".json") else name


def reset_action(client: Client, system: Answer) -> tuple[str, list[str]]:
    """Where a reset is asked for, and the kinds that this machine takes, as far as it tells any."""
    action = at(system.data, "Actions", "#ComputerSystem.Reset")
    kinds = list_at(action, "ResetType@Redfish.AllowableValues")
    info = reset_info(system)
    link = client.find(info) if info else None
    if link:
        for parameter in list_at(link.data, "Parameters"):
            if text_at(parameter, "Name") == "ResetType":
                kinds = list_at(parameter, "AllowableValues")
    return link_at(action, "target"), [said(kind) for kind in kinds[:_MOST_KINDS]]


def managers(client: Client, system: Answer) -> list[Answer]:
    """The managers of a system: those it names, or those of the BMC."""
    named = manager_links(system) or [
        link_at(member) for member in members(client, link_at(client.root, "Managers"))
    ]
    return [answer for answer in map(client.find, filter(None, named)) if answer]


def reset_info(system: Answer) -> str:
    """Where the kinds of resets are, if they are not with their action; or ""."""
    action = at(system.data, "Actions", "#ComputerSystem.Reset")
    listed = list_at(action, "ResetType@Redfish.AllowableValues")
    return "" if listed else link_at(action, "@Redfish.ActionInfo")


def manager_links(system: Answer) -> list[str]:
    """The managers that a system names."""
    return [link_at(link) for link in list_at(system.data, "Links", "ManagedBy")]


def boot_progress(system: Answer) -> str:
    """How far the system has come with its boot, or ""."""
    return text_at(system.data, "BootProgress", "LastState")


def in_post(system: Answer) -> bool:
    """Whether the BMC says that POST is under way."""
    oem = at(system.data, "Oem")
    hpe = text_at(oem, "Hp", "PostState") or text_at(oem, "Hpe", "PostState")
    return boot_progress(system) not in _NOT_IN_POST or hpe.startswith("InPost")
