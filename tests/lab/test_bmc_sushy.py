# SPDX-License-Identifier: Apache-2.0
"""Somebody else's client, OpenStack's sushy, finds its way through the simulated BMCs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.bmc.personality import PERSONALITIES
from tests.support.lab_bmc import PASSWORD, USER, Bmc, certificates, running

sushy = pytest.importorskip("sushy")
BY_REDFISH = [name for name in PERSONALITIES if name != "hpe"]  # an iLO 4 has a BIOS of its own


@contextlib.contextmanager
def connected(bmc: Bmc) -> Iterator[Any]:
    """Logged out again while the BMC still listens; sushy itself would wait for garbage."""
    root = bmc.url + "/redfish/v1"
    connector = sushy.connector.Connector(root, verify=str(bmc.authority))
    connector._session.trust_env = False
    login = sushy.auth.SessionAuth(USER, PASSWORD)
    client = sushy.Sushy(root, auth=login, connector=connector)
    try:
        yield client
    finally:
        login.close()
        connector.close()


@pytest.mark.parametrize("personality", ["dell", "lenovo"])
def test_sushy_sets_the_bios_follows_the_task_of_a_dell_and_logs_out(
    tmp_path: Path, personality: str
) -> None:
    with running(certificates(tmp_path), personality) as bmc:
        before = bmc.machine.sessions.ids()
        with connected(bmc) as client:
            system = client.get_system()
            bios = system.bios
            assert sushy.ApplyTime.ON_RESET in bios.supported_apply_times
            bios.set_attributes(bmc.home, apply_time=sushy.ApplyTime.ON_RESET)
            bios.refresh(force=True)
            assert bmc.home.items() <= bios.pending_attributes.items()
            assert not bmc.home.items() <= bios.attributes.items()
            tasks = client.get_task_service().tasks.get_members() if personality == "dell" else []
            assert all(task.task_state == sushy.TASK_STATE_STARTING for task in tasks)
            system.reset_system(sushy.ResetType.FORCE_RESTART)
            bios.refresh(force=True)
            assert bmc.home.items() <= bios.attributes.items()
            for task in tasks:
                task.refresh(force=True)
                assert task.task_state == sushy.TASK_STATE_COMPLETED
            told = bios.update_status.status, len(tasks)
            assert told == ((4, 1) if personality == "dell" else (1, 0))  # NO_UPDATES, SUCCESS
            assert bmc.changes() == ["PATCH", "POST"]
        assert bmc.machine.sessions.ids() == before


@pytest.mark.parametrize("personality", BY_REDFISH)
def test_sushy_reads_system_bios_and_registry(tmp_path: Path, personality: str) -> None:
    with running(certificates(tmp_path), personality) as bmc, connected(bmc) as client:
        system = client.get_system()
        assert system.power_state == sushy.PowerState.ON
        assert system.boot_progress.last_state == sushy.BootProgressStates.OS_RUNNING
        assert system.uuid == bmc.machine.uuid
        assert system.bios.attributes == bmc.machine.current
        registry = system.bios.get_attribute_registry()
        names = [attribute.name for attribute in registry.registry_entries.attributes]
        assert names == list(bmc.machine.current)
        (manager,) = client.get_manager_collection().get_members()
        assert manager.model == bmc.machine.personality.manager_model
