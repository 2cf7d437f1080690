# SPDX-License-Identifier: Apache-2.0
"""What is done to hosts, singly or in a batch, as long as it is permitted."""
