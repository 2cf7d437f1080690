# SPDX-License-Identifier: Apache-2.0
"""The metadata that StackStorm reads, and what an upgrade finds."""
