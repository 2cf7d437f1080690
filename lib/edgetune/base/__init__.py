# SPDX-License-Identifier: Apache-2.0
"""Readers and small tools that know nothing of servers: errors, the clock, strict YAML."""
