# SPDX-License-Identifier: Apache-2.0
"""Checks of the pack's YAML: what StackStorm's registration accepts, and what a run would need.

schemas    the shape of each kind of file
builtin    what a StackStorm knows before any pack is installed
values     documents, and the values that one gives to the parameters of another
source     metadata held against the source of its Python file
actions    actions and the metadata of workflows
events     sensors and rules
policies, aliases
workflows  Orquesta definitions

Each check returns its findings, as `field: what is wrong`.
"""
