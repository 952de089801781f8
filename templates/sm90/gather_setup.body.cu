//$ -- SPDX-License-Identifier: Apache-2.0
struct gather g;
g.pairs = gather;
g.topk = topk;
g.tokens = tokens;
g.error = error;
g.a = (const char *)a;
g.pitch = (unsigned int)(a_stride * $(a.bytes));
g.k = k;
