# SPDX-License-Identifier: Apache-2.0
"""Rows of a ClickHouse that a site has."""
