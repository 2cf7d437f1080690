# SPDX-License-Identifier: Apache-2.0
"""A stand-in, used only where StackStorm is absent."""
