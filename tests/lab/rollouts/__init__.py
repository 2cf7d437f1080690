# SPDX-License-Identifier: Apache-2.0
"""Whole rollouts on hosts of the lab."""
