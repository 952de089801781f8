//$ -- SPDX-License-Identifier: Apache-2.0
/* How fast an activation grows along each of its operands. */
struct gradient { float a, b; };
