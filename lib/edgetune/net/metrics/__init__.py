# SPDX-License-Identifier: Apache-2.0
"""Samples of hosts: asked of a source, kept for a while, put together."""
