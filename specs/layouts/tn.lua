-- Which axis of A and B is contiguous. The names are cuBLAS's: the first letter is B's, T for
-- k-major; the second A's, N for k-major.

layout "tn" { a = "k", b = "k" }

-- SPDX-License-Identifier: Apache-2.0
