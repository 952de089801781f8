//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "common/wait.body.cu"
//$ include "common/noop.c"
