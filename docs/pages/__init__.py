# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/reference: their prose is in ``NAME.md.in``, their tables are made here.

The tables come from the pack's YAML, from code, and from ``words.yaml``.

markdown    tables, code and paragraphs
pack        configuration, actions, rules and chat
tunings     the catalogue
kinds       kinds of settings
metrics     what a rollout can judge, and the sources of samples
exported    what edgetune exports to Prometheus, and its alerts
facts       what expressions and ``applies_to`` may use
congestion  the entry ``congestion`` of a PoP
entries     what the inventory has for a driver or a metric source
drivers     load balancers, and their fields in the inventory
machines    what can be done with recorded machines and their BMCs
words       the words of ``words.yaml``, of which each must have its subject
"""
