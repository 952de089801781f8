//$ -- SPDX-License-Identifier: Apache-2.0
enum { GATED = $(activations.gated_bits) }; /* bit i: activation i has two operands */
