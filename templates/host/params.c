//$ -- SPDX-License-Identifier: Apache-2.0
//$ for _, p in ipairs(params) do
//$   if p.name == "microbatches" then
const struct microbatches *const microbatches = (const struct microbatches *)params[$(p.index)];
//$   else
$(p.type) const $(p.name) __attribute__((unused)) = *($(p.type) const *)params[$(p.index)];
//$   end
//$ end
