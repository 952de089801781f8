//$ for _, p in ipairs(params) do
    $(p.declaration)$(p.comma)
//$ end
