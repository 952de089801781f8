//$ -- SPDX-License-Identifier: Apache-2.0
//$ for _, name in ipairs(activations) do
//$   once("activation/" .. name .. ".c")
//$ end
/*
** One of them, chosen at run time by its number, from 1 on; limit, slope and shift are those of the
** clamped one.
*/
FN float activate(int which, float a, float b, float limit, float slope, float shift)
{
    switch (which) {
//$ for i, name in ipairs(activations) do
//$   local more = name == "clamped_swiglu" and ", limit, slope, shift" or ""
    case $(i):
        return $(name)(a, b$(more));
//$ end
    default:
        return a;
    }
}

FN struct gradient activate_gradient(int which, float a, float b, float limit, float slope,
                                     float shift)
{
    const struct gradient none = { 1, 0 };

    switch (which) {
//$ for i, name in ipairs(activations) do
//$   local more = name == "clamped_swiglu" and ", limit, slope, shift" or ""
    case $(i):
        return $(name)_gradient(a, b$(more));
//$ end
    default:
        return none;
    }
}
