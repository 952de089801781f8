ragged "m" { a = "m", d = "m" }

-- SPDX-License-Identifier: Apache-2.0
