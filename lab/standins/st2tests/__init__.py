# SPDX-License-Identifier: Apache-2.0
"""A stand-in, used only where StackStorm is absent: base classes for tests of a pack."""
