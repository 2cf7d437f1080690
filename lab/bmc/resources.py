# SPDX-License-Identifier: Apache-2.0
"""The resources of one machine's BMC: which path is which, and what a GET of each answers."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Callable

from .attributes import registry
from .jobs import STATES, Job
from .machine import Event, Machine, now
from .messages import Refused, message
from .personality import Personality

Body = dict[str, Any]

ROOT = "/redfish/v1"
SHARED = {
    "root": ROOT,
    "systems": f"{ROOT}/Systems",
    "managers": f"{ROOT}/Managers",
    "registries": f"{ROOT}/Registries",
    "session_service": f"{ROOT}/SessionService",
    "sessions": f"{ROOT}/SessionService/Sessions",
    "task_service": f"{ROOT}/TaskService",
    "tasks": f"{ROOT}/TaskService/Tasks",
}
ITEMS = {"sessions": "session", "jobs": "job", "tasks": "task", "entries": "entry"}
BOOT_PROGRESS = {"os": "OSRunning", "post": "MemoryInitializationStarted", "off": "None"}
FACTS = {"$post_state": {"os": "FinishedPost", "post": "InPost", "off": "PowerOff"}}
# odata types by resource, as far as a client looks at them.
TYPES = {
    "root": "#ServiceRoot.v1_5_0.ServiceRoot",
    "system": "#ComputerSystem.v1_13_0.ComputerSystem",
    "bios": "#Bios.v1_1_0.Bios",
    "settings": "#Bios.v1_1_0.Bios",
    "manager": "#Manager.v1_5_0.Manager",
    "session_service": "#SessionService.v1_1_0.SessionService",
    "session": "#Session.v1_0_0.Session",
    "registry_file": "#MessageRegistryFile.v1_0_0.MessageRegistryFile",
    "registry": "#AttributeRegistry.v1_1_0.AttributeRegistry",
    "task_service": "#TaskService.v1_0_0.TaskService",
    "task": "#Task.v1_0_2.Task",
    "job": "#DellJob.v1_0_2.DellJob",
    "log": "#LogService.v1_0_2.LogService",
    "entry": "#LogEntry.v1_3_0.LogEntry",
    "action_info": "#ActionInfo.v1_1_0.ActionInfo",
}


@functools.cache
def paths(personality: Personality) -> Mapping[str, str]:
    """Name of a resource -> its path without a slash at the end."""
    known = {**SHARED, **personality.paths}
    if not personality.jobs:
        known = {name: path for name, path in known.items() if not name.startswith("task")}
    return known


def locate(personality: Personality, path: str) -> tuple[str, str]:
    """Name of the resource at a path, and which one of many it is; Refused if there is none."""
    path = path.partition("?")[0].rstrip("/")
    parent, _, item = path.rpartition("/")
    for name, known in paths(personality).items():
        if known == path:
            return name, ""
        if known == parent and name in ITEMS:
            return ITEMS[name], item
    raise Refused("missing", path)


def link(personality: Personality, name: str, item: str = "") -> str:
    path = paths(personality)[name] + (f"/{item}" if item else "")
    return path + "/" if personality.slashes else path


def etag(personality: Personality, body: Body) -> str:
    digest = hashlib.md5(json.dumps(body).encode(), usedforsecurity=False).hexdigest()[:8]
    return f'W/"{digest}"' if personality.weak_etags else f'"{digest}"'


def read(machine: Machine, name: str, item: str) -> Body:
    """What a GET answers; Refused where there is nothing (any more), or nothing to read."""
    if name not in _BUILDERS:
        raise Refused("not_allowed")
    body = _BUILDERS[name](machine, item)
    parent = next((many for many, one in ITEMS.items() if one == name), name)
    head = {"@odata.id": link(machine.personality, parent, item)}
    if name in TYPES:
        head["@odata.type"] = TYPES[name]
    overlay = machine.personality.overlay.get(name, {})
    return _merged({**head, **body}, overlay, machine.phase)


def _merged(body: Body, overlay: Mapping[str, Any], phase: str) -> Body:
    merged = dict(body)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key) or {}, value, phase)
        elif isinstance(value, str) and value in FACTS:
            merged[key] = FACTS[value][phase]
        else:
            merged[key] = value
    return merged


def _to(machine: Machine, name: str, item: str = "") -> Body:
    return {"@odata.id": link(machine.personality, name, item)}


def _collection(name: str, members: list[Body]) -> Body:
    return {"Name": name, "Members": members, "Members@odata.count": len(members)}


def _root(machine: Machine, item: str) -> Body:
    body = {
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.6.0",
        "UUID": machine.uuid,
        "Vendor": machine.personality.manufacturer,
        "Systems": _to(machine, "systems"),
        "Managers": _to(machine, "managers"),
        "Registries": _to(machine, "registries"),
        "SessionService": _to(machine, "session_service"),
        "Links": {"Sessions": _to(machine, "sessions")},
    }
    if not machine.personality.jobs:
        return body
    expand = {"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 1}}
    return {
        **body,
        "Tasks": _to(machine, "task_service"),
        "ProtocolFeaturesSupported": expand,
    }


def _system(machine: Machine, item: str) -> Body:
    personality = machine.personality
    return {
        "Id": personality.paths["system"].rpartition("/")[2],
        "Name": "System",
        "SystemType": "Physical",
        "Manufacturer": personality.manufacturer,
        "Model": personality.model,
        "BiosVersion": personality.bios_version,
        "UUID": machine.uuid,
        "SerialNumber": machine.serial,
        "HostName": machine.name,
        "PowerState": "Off" if machine.phase == "off" else "On",
        "Status": {"State": "Enabled", "Health": _health(machine), "HealthRollup": "OK"},
        "BootProgress": {"LastState": BOOT_PROGRESS[machine.phase]},
        "Bios": _to(machine, "bios"),
        "LogServices": _to(machine, "log_services"),
        "Links": {"ManagedBy": [_to(machine, "manager")]},
        "Actions": {"#ComputerSystem.Reset": _reset_action(machine)},
    }


def _health(machine: Machine) -> str:
    return "Critical" if "stays_down" in machine.faults and machine.phase == "post" else "OK"


def _reset_action(machine: Machine) -> Body:
    action: Body = {"target": link(machine.personality, "reset")}
    if machine.personality.action_info:
        return {**action, "@Redfish.ActionInfo": link(machine.personality, "action_info")}
    return {**action, "ResetType@Redfish.AllowableValues": machine.personality.resets}


def _action_info(machine: Machine, item: str) -> Body:
    allowed = machine.personality.resets
    parameter = {"Name": "ResetType", "Required": True, "DataType": "String"}
    return {
        "Id": "ResetActionInfo",
        "Name": "Reset Action Info",
        "Parameters": [{**parameter, "AllowableValues": allowed}],
    }


def _bios(machine: Machine, item: str) -> Body:
    body = {**_bios_head(machine, "Current"), **_attributes(machine, machine.current)}
    return {**body, **_settings_annotation(machine)}


def _settings(machine: Machine, item: str) -> Body:
    shown = machine.pending
    if not machine.personality.delta:
        shown = {**machine.current, **machine.pending}
    body = {**_bios_head(machine, "Pending"), **_attributes(machine, shown)}
    if machine.personality.apply_times:
        allowed = {"ApplyTime@Redfish.AllowableValues": machine.personality.apply_times}
        body["@Redfish.SettingsApplyTime"] = allowed
    return body


def _bios_head(machine: Machine, which: str) -> Body:
    registry_name = machine.personality.registry
    return {"Id": "Bios", "Name": f"BIOS {which} Settings", "AttributeRegistry": registry_name}


def _attributes(machine: Machine, values: Mapping[str, Any]) -> Body:
    return dict(values) if machine.personality.flat else {"Attributes": dict(values)}


def _settings_annotation(machine: Machine) -> Body:
    """How the last boot took what was pending: SettingsResult in a flat resource."""
    personality = machine.personality
    result: Body = {}
    if machine.applied is not None:
        time, messages = machine.applied
        entries = [message(personality, key, arguments) for key, arguments in messages]
        result = {"Time": time, "Messages": entries, "ETag": etag(personality, machine.current)}
    if personality.flat:
        for entry in result.get("Messages", []):
            entry["MessageID"] = ":".join(entry.pop("MessageId").rsplit(".", 1))
        return {"SettingsResult": result}
    settings: Body = {"@odata.type": "#Settings.v1_3_0.Settings", **result}
    settings["SettingsObject"] = _to(machine, "settings")
    if personality.apply_times:
        settings["SupportedApplyTimes"] = personality.apply_times
    return {"@Redfish.Settings": settings}


def _manager(machine: Machine, item: str) -> Body:
    return {
        "Id": machine.personality.paths["manager"].rpartition("/")[2],
        "Name": "Manager",
        "ManagerType": "BMC",
        "Model": machine.personality.manager_model,
        "DateTime": now(),
        "LogServices": _to(machine, "log_services"),
        "Links": {"ManagerForServers": [_to(machine, "system")]},
    }


def _session_service(machine: Machine, item: str) -> Body:
    return {
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": True,
        "SessionTimeout": int(machine.personality.session_seconds),
        "Sessions": _to(machine, "sessions"),
    }


def _sessions(machine: Machine, item: str) -> Body:
    members = [_to(machine, "sessions", identity) for identity in machine.sessions.ids()]
    return _collection("Sessions", members)


def _session(machine: Machine, item: str) -> Body:
    session = machine.sessions.get(item)
    if session is None:
        raise Refused("missing", item)
    return {"Id": item, "Name": "User Session", "UserName": session.user}


def _registries(machine: Machine, item: str) -> Body:
    there = "no_registry" not in machine.faults
    return _collection("Registries", [_to(machine, "registry_file")] if there else [])


def _registry_file(machine: Machine, item: str) -> Body:
    _expect_registry(machine)
    uri: Any = link(machine.personality, "registry")
    return {
        "Id": machine.personality.registry,
        "Name": f"{machine.personality.registry} Registry File",
        "Registry": machine.personality.registry,
        "Languages": ["en"],
        "Location": [{"Language": "en", "Uri": {"extref": uri} if _is_old(machine) else uri}],
    }


def _registry(machine: Machine, item: str) -> Body:
    _expect_registry(machine)
    personality = machine.personality
    return {
        "Id": personality.registry,
        "Name": f"{personality.model} BIOS Attribute Registry",
        "Language": "en",
        "OwningEntity": personality.manufacturer,
        "RegistryVersion": "1.0.0",
        "SupportedSystems": [
            {
                "ProductName": personality.model,
                "SystemId": personality.model,
                "FirmwareVersion": personality.bios_version,
            }
        ],
        "RegistryEntries": registry(personality, machine.current),
    }


def _expect_registry(machine: Machine) -> None:
    if "no_registry" in machine.faults:
        raise Refused("missing", machine.personality.registry)


def _is_old(machine: Machine) -> bool:
    return machine.personality.name_key == "Name"


def _jobs(machine: Machine, item: str) -> Body:
    return _collection("JobQueue", [_to(machine, "jobs", job.id) for job in machine.jobs])


def find_job(machine: Machine, identity: str) -> Job:
    for job in machine.jobs:
        if job.id == identity:
            return job
    raise Refused("missing", identity)


def _job(machine: Machine, item: str) -> Body:
    job = find_job(machine, item)
    identity, text, percent, _, _ = STATES[job.state]
    return {
        "Id": job.id,
        "Name": "ConfigBIOS:BIOS.Setup.1-1",
        "JobType": job.kind,
        "JobState": job.state,
        "Message": text,
        "MessageId": identity,
        "PercentComplete": percent,
        "StartTime": job.created,
        "EndTime": "TIME_NA",
        "TargetSettingsURI": None,
    }


def _tasks(machine: Machine, item: str) -> Body:
    return _collection("Tasks", [_to(machine, "tasks", job.id) for job in machine.jobs])


def _task(machine: Machine, item: str) -> Body:
    job = find_job(machine, item)
    identity, text, percent, state, status = STATES[job.state]
    return {
        "Id": job.id,
        "Name": "ConfigBIOS:BIOS.Setup.1-1",
        "TaskState": state,
        "TaskStatus": status,
        "StartTime": job.created,
        "PercentComplete": percent,
        "Messages": [{"Message": text, "MessageId": identity, "MessageArgs": []}],
    }


def _log(machine: Machine, item: str) -> Body:
    return {"Id": "Log", "Name": "Event Log", "Entries": _to(machine, "entries")}


def _entries(machine: Machine, item: str) -> Body:
    members = [
        {**_to(machine, "entries", f"{number}"), **_event(machine, number, event)}
        for number, event in enumerate(machine.events, 1)
    ]
    if machine.personality.newest_first:
        members.reverse()
    return _collection("Log Entries", members)


def _entry(machine: Machine, item: str) -> Body:
    for number, event in enumerate(machine.events, 1):
        if f"{number}" == item:
            return _event(machine, number, event)
    raise Refused("missing", item)


def _event(machine: Machine, number: int, event: Event) -> Body:
    return {
        "@odata.type": TYPES["entry"],
        "Id": f"{number}",
        "Name": f"Log Entry {number}",
        "EntryType": "SEL",
        "Created": event.created,
        "Severity": event.severity,
        "Message": event.message,
    }


def _one(name: str, member: str) -> Callable[[Machine, str], Body]:
    return lambda machine, item: _collection(name, [_to(machine, member)])


def _task_service(machine: Machine, item: str) -> Body:
    return {"Id": "TaskService", "Name": "Task Service", "Tasks": _to(machine, "tasks")}


_BUILDERS: dict[str, Callable[[Machine, str], Body]] = {
    "root": _root,
    "systems": _one("Computer Systems", "system"),
    "system": _system,
    "action_info": _action_info,
    "bios": _bios,
    "settings": _settings,
    "managers": _one("Managers", "manager"),
    "manager": _manager,
    "session_service": _session_service,
    "sessions": _sessions,
    "session": _session,
    "registries": _registries,
    "registry_file": _registry_file,
    "registry": _registry,
    "task_service": _task_service,
    "tasks": _tasks,
    "task": _task,
    "jobs": _jobs,
    "job": _job,
    "log_services": _one("Log Services", "log"),
    "log": _log,
    "entries": _entries,
    "entry": _entry,
}
