/* promoted every $(promote) */
//$ for _, x in ipairs { { "a", a }, { "b", b }, { "d", d } } do
//$   local s = x[2].scale
//$   if s then
/* $(x[1]): $(x[2].type), $(s.type) of $(s.bytes) bytes for a $(s.span) of $(s.rows) x $(s.k), $(s.copy) copy */
/*    $(s.order), to $(s.pad_rows) x $(s.pad_columns), groups $(s.apart and "apart" or "together") */
//$   else
/* $(x[1]): $(x[2].type) */
//$   end
//$ end
extern "C" void $(name)(
//$ for _, p in ipairs(params) do
    $(p.type) $(p.name)$(p.comma) /* $(p.meaning) */
//$ end
);
