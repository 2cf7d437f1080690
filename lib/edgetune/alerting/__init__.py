# SPDX-License-Identifier: Apache-2.0
"""Silences in Alertmanager: put, renewed and ended, each with a bound on how long it lasts.

Alertmanager is asked for the silences of a rollout each time. So nothing about them is kept here,
and what a stopped process left is found.
"""
