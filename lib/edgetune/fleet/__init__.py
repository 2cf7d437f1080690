# SPDX-License-Identifier: Apache-2.0
"""Over many PoPs: campaigns of rings, and exported metrics."""
