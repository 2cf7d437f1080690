# SPDX-License-Identifier: Apache-2.0
"""One file for each action of a round."""
