# SPDX-License-Identifier: Apache-2.0
"""The pack's files as StackStorm reads them: actions, their entry points, the configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgetune.base import files
from edgetune.base.errors import InputError
from edgetune.base.fields import near

__all__ = ["Action", "MetadataError", "Pack", "load_config", "load_yaml"]

Schema = dict[str, Any]

_LOG_LEVELS = ["AUDIT", "CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"]

# Parameters that every action of a runner has; an action may override their defaults.
_RUNNER_PARAMETERS: dict[str, Schema] = {
    "python-script": {
        "content_version": {"type": "string"},
        "debug": {"type": "boolean", "default": False},
        "env": {"type": "object"},
        "log_level": {"type": "string", "default": "DEBUG", "enum": _LOG_LEVELS},
        "timeout": {"type": "integer", "default": 600},
    },
    "orquesta": {"notify": {"type": "array", "default": []}},
    "announcement": {
        "experimental": {"type": "boolean", "default": False},
        "route": {"type": "string", "default": "general"},
    },
}


class MetadataError(ValueError):
    """A file of the pack cannot be used, or a name is not in it; the message is one line."""


@dataclass(frozen=True)
class Action:
    """One registered action or workflow."""

    ref: str
    runner: str
    description: str
    parameters: Schema
    pack_root: Path
    entry_point: str

    @property
    def name(self) -> str:
        """Without the pack."""
        return self.ref.partition(".")[2]

    @property
    def runner_parameters(self) -> Schema:
        return _RUNNER_PARAMETERS.get(self.runner, {})

    @property
    def schema(self) -> Schema:
        """Name to schema of all parameters, those of the runner included."""
        merged = {name: dict(schema) for name, schema in self.runner_parameters.items()}
        for name, schema in self.parameters.items():
            merged[name] = {**merged.get(name, {}), **schema}
        return merged

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(name for name, schema in self.schema.items() if schema.get("secret"))

    @property
    def file(self) -> Path:
        """The entry point, by StackStorm's rules: below `actions/`, no `..`, links allowed."""
        relative = f"actions/{self.entry_point}"
        if os.path.normpath("/" + relative).lstrip("/") != relative:
            raise MetadataError(f'{self.ref}: entry_point "{self.entry_point}" leaves actions/')
        return self.pack_root / relative


_CORE = {
    "core.noop": Action("core.noop", "noop", "Does nothing.", {}, Path(), ""),
    "core.echo": Action(
        "core.echo",
        "echo",
        "Returns its message as standard output.",
        {"message": {"type": "string", "required": True}},
        Path(),
        "",
    ),
}


class Pack:
    """A pack's directory. Raises MetadataError when a file of it is malformed."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        manifest = load_yaml(self.root / "pack.yaml")
        self.ref = str(manifest.get("ref") or self.root.name)
        self._read: dict[str, Action | None] = {}

    @cached_property
    def actions(self) -> dict[str, Action]:
        """Ref to action, of all enabled actions, sorted."""
        files = sorted((self.root / "actions").glob("*.y*ml"))
        found = [self._action(load_yaml(file)) for file in files]
        return {action.ref: action for action in found if action is not None}

    def action(self, name: str) -> Action:
        """The action of this name or ref; raises MetadataError with the nearest name."""
        ref = name if "." in name else f"{self.ref}.{name}"
        found = self._by_file(ref) or self.actions.get(ref) or _CORE.get(ref)
        if found is None:
            # What all names begin with would make any two of them alike.
            bare = name[len(f"{self.ref}.") :] if name.startswith(f"{self.ref}.") else name
            hint = near(bare, [action.name for action in self.actions.values()])
            raise MetadataError(f'unknown action "{name}"{hint}')
        return found

    def _by_file(self, ref: str) -> Action | None:
        """An action whose file has its name, as all of a tidy pack; reading all takes a while."""
        if ref not in self._read:
            file = self.root / "actions" / f"{ref.partition('.')[2]}.yaml"
            is_there = file.parent == self.root / "actions" and file.is_file()
            found = self._action(load_yaml(file)) if is_there else None
            self._read[ref] = found if found and found.ref == ref else None
        return self._read[ref]

    @property
    def config_schema(self) -> Schema:
        file = self.root / "config.schema.yaml"
        return load_yaml(file) if file.exists() else {}

    def _action(self, metadata: dict[str, Any]) -> Action | None:
        if not metadata.get("enabled", True):
            return None
        return Action(
            ref=f"{self.ref}.{metadata['name']}",
            runner=metadata["runner_type"],
            description=metadata.get("description", ""),
            parameters=metadata.get("parameters") or {},
            pack_root=self.root,
            entry_point=metadata.get("entry_point", ""),
        )


def load_config(pack: Pack, file: Path) -> dict[str, Any]:
    """The pack's configuration with the defaults of config.schema.yaml."""
    return _with_defaults(load_yaml(file), pack.config_schema)


def load_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises MetadataError that names the file."""
    try:
        content = files.load_yaml(file)
    except InputError as error:
        raise MetadataError(str(error)) from error
    if not isinstance(content, dict):
        raise MetadataError(f"{file}: a mapping is expected")
    return content


def _with_defaults(values: dict[str, Any], schema: Schema) -> dict[str, Any]:
    filled = dict(values)
    for name, item in schema.items():
        if "default" in item:
            filled.setdefault(name, item["default"])
        if item.get("type") == "object" and item.get("properties"):
            filled[name] = _with_defaults(filled.get(name) or {}, item["properties"])
    return filled
