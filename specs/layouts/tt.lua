-- A m-major, B k-major.

layout "tt" { a = "mn", b = "k" }

-- SPDX-License-Identifier: Apache-2.0
