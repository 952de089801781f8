//$ -- SPDX-License-Identifier: Apache-2.0
//$ for _, p in ipairs(params) do
$(p.declaration)$(p.comma)
//$ end
