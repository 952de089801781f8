-- All groups have the same sizes: a uniform batch.

ragged "none" {}

-- SPDX-License-Identifier: Apache-2.0
