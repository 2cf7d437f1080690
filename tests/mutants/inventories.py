# SPDX-License-Identifier: Apache-2.0
"""Mistakes about the inventory."""

from __future__ import annotations

from tests.mutants.mutation import mutations_of

READ = mutations_of(
    "lib/edgetune/inventories",
    ["lib/inventories/test_told", "lib/inventories/test_layers", "lib/inventories/test_contract"],
    (
        "a page that lists less than it counts ends the list",
        "netbox.py",
        "            if len(results) == count:\n",
        "            if len(results) == count or not results:\n",
    ),
    (
        "the same page is read as one page after the other",
        "netbox.py",
        "            if ids != sorted({own for own in ids if isinstance(own, int)}):\n",
        "            if False:\n",
    ),
    (
        "a device is missed where another one goes between two pages",
        "netbox.py",
        '            beyond = [("id__gt", str(last))] if last else []\n',
        '            beyond = [("offset", str(len(found)))] if last else []\n',
    ),
    (
        "a filter that NetBox does not know selects all devices",
        "netbox.py",
        "            if all(count == every for count in counts):\n",
        "            if False:\n",
    ),
    (
        "the first page is taken for all",
        "netbox.py",
        "            if len(results) == count:\n",
        "            if True:\n",
    ),
    (
        "a host without a PoP is left out",
        "ansible.py",
        "        for name in self._members(limit):\n",
        "        for name in (pop_of or self._members(limit)):\n",
    ),
    (
        "marks inside of lists stay",
        "ansible.py",
        "        return [_plain(each) for each in value]\n",
        "        return value\n",
    ),
    (
        "what stands below an encrypted variable passes for missing",
        "ansible.py",
        " and _VAULT not in value:\n",
        ":\n",
    ),
    (
        "of two hosts of one name the last one counts",
        "_told.py",
        "            if hosts.setdefault(name, host) != host:\n",
        "            hosts[name] = host\n            if False:\n",
    ),
    (
        "a group that is not there is left out",
        "_layers.py",
        "            if group not in self._groups:\n",
        "            if group not in self._groups and self._groups.setdefault(group, {}):\n",
    ),
    (
        "defaults win over what a PoP says",
        "_layers.py",
        "    for layer in layers:\n",
        "    for layer in reversed(layers):\n",
    ),
)
KEPT = mutations_of(
    "lib/edgetune/rollout",
    ["lib/rollout/steps/test_inventory"],
    (
        "an inventory that shrinks is planned",
        "kept_inventory.py",
        "        if gone:\n",
        "        if False:\n",
    ),
    (
        "what shrinks is kept all the same",
        "kept_inventory.py",
        "            if before is None or _too_many_gone(context, before, found.pop(name)):\n",
        "            if False:\n",
    ),
    (
        "a rollout loses the hosts that the inventory lost",
        "kept_inventory.py",
        "    return replace(now, hosts=(*now.hosts, *gone)) if gone else now\n",
        "    return now\n",
    ),
    (
        "a rollout stops where the inventory does not tell of its PoP",
        "kept_inventory.py",
        "        if planned is None:\n",
        "        if True:\n",
    ),
    (
        "a damaged copy of a PoP stops a rollback",
        "kept_inventory.py",
        "_UNREADABLE = (InputError, DamagedError)\n",
        "_UNREADABLE = (RecursionError,)\n",
    ),
    (
        "what cannot be read of a PoP is planned as if nothing had been known",
        "kept_inventory.py",
        "        if before is None:\n",
        "        if False:\n",
    ),
    (
        "a campaign goes on without a PoP that is gone",
        "kept_inventory.py",
        "    if gone and context.config.inventory_shrink < 1:\n",
        "    if False:\n",
    ),
    (
        "what was kept in the future is new for ever",
        "kept_inventory.py",
        "        if 0 <= age < context.config.inventory_max_age:\n",
        "        if age < context.config.inventory_max_age:\n",
    ),
    (
        "a service is asked by every step",
        "stored_inventory.py",
        " if kept is None else StoredInventory(store(), kept)\n",
        "\n",
    ),
)
UPGRADED = mutations_of(
    "lib/edgetune",
    ["pack/test_upgrade", "lib/rollout/test_doctor"],
    (
        "the share that an older inventory gives is not looked at",
        "inventories/_reading.py",
        "    return share\n",
        "    return 0.7\n",
    ),
    (
        "of a former name and the present one either counts",
        "inventories/_reading.py",
        '    if fields.raw("min_in_service", None) is not None:\n',
        "    if False:\n",
    ),
    (
        "a folder whose name begins alike is taken for the pack's",
        "rollout/pack_folder.py",
        "ROOT in (Path(way), *Path(way).parents) for way",
        "way.startswith(str(ROOT)) for way",
    ),
    (
        "links into the folder of the pack are not followed",
        "rollout/pack_folder.py",
        "(os.path.normpath(path), os.path.realpath(path))",
        "(os.path.normpath(path),)",
    ),
    (
        "what the inventory names may lie in the folder of the pack",
        "rollout/pack_folder.py",
        '        *_texts("inventory", load_yaml(config.inventory)),\n',
        "",
    ),
    (
        "the doctor says nothing of the folder of the pack",
        "rollout/steps/doctor_pop.py",
        '    if subject.context.config.records == "st2":\n',
        "    if False:\n",
    ),
)
INVENTORIES = (*READ, *KEPT, *UPGRADED)
