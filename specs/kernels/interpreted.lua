-- Kernels that the interpreter of PTX ran right (tests/ptx): none yet. A name with an asterisk is
-- the beginning of several.

evidence "interpreted" {
}

-- SPDX-License-Identifier: Apache-2.0
