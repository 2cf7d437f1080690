# SPDX-License-Identifier: Apache-2.0
"""One file for each action that shows people how things stand; none changes anything."""
