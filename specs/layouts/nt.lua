-- A m-major, B n-major: wgrad as the activations and their gradients are.

layout "nt" { a = "mn", b = "mn" }

-- SPDX-License-Identifier: Apache-2.0
