//$ -- SPDX-License-Identifier: Apache-2.0
//$ if factors == "row" then
factors.pairs = gather;
factors.topk = topk;
factors.tokens = tokens;
//$ end
struct gather g;
g.pairs = gather;
g.topk = topk;
g.tokens = tokens;
g.error = error;
g.a = (const char *)a;
g.pitch = (unsigned int)(a_stride * $(a.bytes));
g.k = k;
//$ if factors == "squares" then
g.sf = a_sf;
g.sf_stride = (unsigned int)a_sf_stride;
//$ end
