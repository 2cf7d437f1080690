# SPDX-License-Identifier: Apache-2.0
"""Conversations with BMCs over Redfish."""
