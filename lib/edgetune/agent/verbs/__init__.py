# SPDX-License-Identifier: Apache-2.0
"""What can be asked of the agent: a function for each verb, which answers a request."""
