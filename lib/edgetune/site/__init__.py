# SPDX-License-Identifier: Apache-2.0
"""What a site wrote down: the configuration, the PoPs and their hosts."""
