-- Kernels that ran in the GPU suite on the interpreter of PTX (bench/interpret.py).
-- bench/evidence.py writes this list from bench/results, and CI compares both. A name with an
-- asterisk is the beginning of several.

evidence "interpreted" {

}

-- SPDX-License-Identifier: Apache-2.0
