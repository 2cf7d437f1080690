# SPDX-License-Identifier: Apache-2.0
"""The one way to a peer over a socket: one deadline and one bound on size for all of it.

Nothing else in ``lib`` opens a socket, except the host agent, which is sent alone.
"""
