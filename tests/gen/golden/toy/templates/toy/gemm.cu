/* $(op) of $(a.type), $(schedule): a template that uses each feature once. */
//$ local rows = schedule == "pingpong" and tile.m // 2 or tile.m
enum {
    TILE_M = $(tile.m),
    TILE_N = $(tile[2]),
    ROWS = $(rows), /* $(#params) parameters, (parentheses) and ")" */
    STAGES = $(stages),
};

    //$ include "toy/piece.cu"

//$ for i = 0, 3, 2 do
const float c$(i) = $(hex((i + 1) / 3));
//$ end

extern "C" void $(name)(
//$ for _, p in ipairs(params) do
    $(p.type) $(p.name)$(p.comma) /* $(p.index): $(p.meaning) */
//$ end
)
{
    asm("mov %$(depth), $$ \"\\n\";"); //$ is Lua only where a line begins with it
//$ if wide then
    wide("$(string.format("%04x|%-5s|%d", 255, op, -1))");
//$ end
    use(TILE_M, TILE_N, ROWS, STAGES, a, b, last, c0, c2);
    max($(types.e4m3.bits), $(types.e2m1.name));
}
