# SPDX-License-Identifier: Apache-2.0
"""Campaigns: one tuning, ring by ring."""
