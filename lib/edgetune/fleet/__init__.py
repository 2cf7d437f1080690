# SPDX-License-Identifier: Apache-2.0
"""Over many PoPs: campaigns of rings, exported metrics, and the way in of every action."""
