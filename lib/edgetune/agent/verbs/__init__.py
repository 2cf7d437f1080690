# SPDX-License-Identifier: Apache-2.0
"""What can be asked of the agent: a module for each verb, whose ``run`` answers a request."""
