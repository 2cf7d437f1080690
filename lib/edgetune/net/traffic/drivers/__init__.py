# SPDX-License-Identifier: Apache-2.0
"""One file a driver, by its name in the inventory. Files that begin with ``_`` are none."""
