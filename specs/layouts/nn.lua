-- A k-major, B n-major: dgrad as the weights of fprop are.

layout "nn" { a = "k", b = "mn" }

-- SPDX-License-Identifier: Apache-2.0
