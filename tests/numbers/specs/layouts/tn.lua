layout "tn" { a = "k", b = "k" }

-- SPDX-License-Identifier: Apache-2.0
