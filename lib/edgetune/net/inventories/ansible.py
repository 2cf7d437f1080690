# SPDX-License-Identifier: Apache-2.0
"""An inventory of Ansible, as ``ansible-inventory --list`` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import MOST_BYTES, load_json, load_yaml, read_file
from edgetune.net.inventories._layers import HostFields, Layers, Record
from edgetune.net.inventories._reading import WholeInventory

_MOST_BYTES = 4 * MOST_BYTES
_NAME, _POP, _ADDRESS = "inventory_hostname", "edgetune_pop", "ansible_host"
_UNSAFE, _VAULT = "__ansible_unsafe", "__ansible_vault"
_USUAL = {
    "name": _NAME,
    "pop": _POP,
    "address": _ADDRESS,
    "port": "ansible_port",
    "rack": "edgetune_rack",
    "hardware": "edgetune_hardware",
    "server": "edgetune_server",
    "bmc.address": "edgetune_bmc",
}


class AnsibleInventory(WholeInventory):
    """Hosts of the JSON that ``ansible-inventory --list`` prints, with their variables.

    The PoP of a host is its variable ``edgetune_pop``, or the rest of the name of its group that
    begins with ``source.pop_prefix``. No code of Ansible runs: its plugins are programs.
    """

    is_kept: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        source = top.inside("source")
        listed = _Listed(Path(source.text("file")))
        limit = source.text("limit", "all")
        prefix = source.text("pop_prefix", "")
        fields = HostFields(source, _USUAL)
        source.done()
        if prefix and fields.paths["pop"] != _POP:
            raise source.wrong("pop_prefix", "is given beside fields.pop")
        read = [path for path in fields.paths.values() if path]
        pops = fields.pops(listed.where, listed.hosts(limit, prefix, read))
        layers = Layers(top, str(path), pops, listed.where)
        top.done()
        super().__init__(listed.where, layers.entries, layers.place)


class _Listed:
    """Groups and variables of hosts in one file; InputError where it does not hold all of them."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            self._groups = _plain(load_json(read_file(path, _MOST_BYTES).decode("utf-8")))
        except (OSError, ValueError) as error:
            raise InputError(self.where, None, f"cannot be read: {error}") from None
        if not isinstance(self._groups, dict):
            raise InputError(self.where, None, "must be a mapping of groups")
        meta = self._groups.pop("_meta", None)
        variables = meta.get("hostvars") if isinstance(meta, Mapping) else None
        if not isinstance(variables, Mapping):
            problem = "is missing: have ansible-inventory --list print the file"
            raise InputError(self.where, "_meta.hostvars", problem)
        self._variables = variables

    def hosts(self, limit: str, prefix: str, read: Sequence[str]) -> Iterator[tuple[str, Record]]:
        """The record of each host of a group, and what names it; ``read`` are paths in it."""
        pop_of = self._pops_by_host(prefix) if prefix else {}
        for name in self._members(limit):
            variables = self._variables.get(name, {})
            if not isinstance(variables, Mapping):
                raise InputError(self.where, f"_meta.hostvars.{name}", "must be a mapping")
            pop = {_POP: pop_of[name]} if name in pop_of else {}
            record = {_ADDRESS: name, **variables, **pop, _NAME: name}
            for variable in read:
                if _is_secret(record, variable):
                    problem = "is encrypted by ansible-vault: keep it in a variable that is not"
                    raise InputError(self.where, f"{name}: {variable}", problem)
            yield name, record

    def _pops_by_host(self, prefix: str) -> dict[str, str]:
        pops: dict[str, str] = {}
        for group in self._groups:
            for name in self._members(group) if group.startswith(prefix) else ():
                pop = group[len(prefix) :]
                if pops.setdefault(name, pop) != pop:
                    problem = f"is in {prefix}{pops[name]} and in {group}: pop_prefix names one PoP"
                    raise InputError(self.where, name, problem)
        return pops

    def _members(self, group: str) -> dict[str, None]:
        """Names of the hosts of a group and of those below it, each once, in their order."""
        names: dict[str, None] = {}
        seen, left = {group}, [group]
        while left:
            name = left.pop(0)
            # Where a group has nothing, Ansible may list it as a child only.
            entry = self._groups.get(name, {} if name != group else None)
            if not isinstance(entry, Mapping):
                raise InputError(self.where, name, "there is no group of that name")
            names.update(dict.fromkeys(_texts(self.where, f"{name}.hosts", entry.get("hosts"))))
            below = _texts(self.where, f"{name}.children", entry.get("children"))
            left += [child for child in below if child not in seen]
            seen.update(below)
        if group == "all":
            names.update(dict.fromkeys(map(str, self._variables)))
        return names


def _plain(value: Any) -> Any:
    """The same without the marks of what Ansible does not evaluate, wherever they are."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if [*value] == [_UNSAFE]:
        return _plain(value[_UNSAFE])
    return {name: _plain(each) for name, each in value.items()}


def _is_secret(record: Record, path: str) -> bool:
    """Whether what stands at a path, or above or within it, is encrypted."""
    name, _, rest = path.partition(".")
    value = record.get(name)
    if rest and isinstance(value, Mapping) and _VAULT not in value:
        return _is_secret(value, rest)
    within = value if isinstance(value, list) else [value]
    return any(isinstance(each, Mapping) and _VAULT in each for each in within)


def _texts(where: str, field: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(where, field, "must be a list of texts")
    return value


INVENTORY = AnsibleInventory
