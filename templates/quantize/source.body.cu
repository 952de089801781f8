//$ -- SPDX-License-Identifier: Apache-2.0
source.all = all;
//$ if input.type == "copy" then
source.row = row;
source.row_stride = row_stride;
source.row_sf = (const sf_element *)row_sf;
source.row_global = row_global;
//$ else
source.in = in;
//$ if params.in_pointers then
source.pointers = in_pointers;
//$ end
source.in_stride = in_stride;
//$ if params.gather then
source.gather = gather;
source.topk = topk;
//$ end
//$ if form == "plain" then
//$ local aligned = params.in_pointers and "" or " && (unsigned long long)in % 16 == 0"
source.paired = in_stride % CHUNK == 0$(aligned);
//$ else
source.paired = k % 2 == 0 && in_stride % 2 == 0 &&
                (unsigned long long)in % $(input.bits // 4) == 0;
//$ end
//$ end
//$ if form ~= "plain" then
source.saved = saved;
source.saved_stride = saved_stride;
source.probability = probability;
source.activation = activation;
source.interleave = interleave;
source.limit = limit;
source.slope = slope;
source.shift = shift;
if (interleave % 2)
    source.paired = 0;
//$ end
//$ if form == "backward" then
if (saved_stride % 2 || (unsigned long long)saved % $(input.bits // 4) ||
    ((GATED >> activation & 1) && k / 2 % 2))
    source.paired = 0;
//$ end
