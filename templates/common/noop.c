//$ -- SPDX-License-Identifier: Apache-2.0
if (noop && *noop)
    return; /* a flag on the device says so */
