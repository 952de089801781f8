//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Delayed scaling, on the host: the next scale, from the largest magnitudes of the last
** $(scale.history) calls.
**
**   scale    [2]   the values' factor, and the stored scale
**   history  [$(scale.history)]  this call's first; afterwards it is the last, each other one entry
**            earlier, and the first is 0, as TransformerEngine rotates its amax_history
*/
#define FN static inline __attribute__((unused))

//$ once "cast/arith.c"
/* From the largest magnitude. */
//$ rule "scale"

void $(name)(void *const *params, int worker, int workers)
{
//$ for _, p in ipairs(params) do
    $(p.type) const $(p.name) = *($(p.type) const *)params[$(p.index)];
//$ end
    const float newest = history[0];
    float amax = newest, stored;

    //$ include "common/noop.c"
    (void)workers;
    if (worker)
        return;
//$ if not scale.latest then
    for (int i = 1; i < $(scale.history); i++)
        amax = history[i] > amax ? history[i] : amax;
//$ end
    scale[0] = scale_of(amax, scale[0], &stored);
    scale[1] = stored;
    for (int i = 1; i + 1 < $(scale.history); i++)
        history[i] = history[i + 1];
    history[$(scale.history) - 1] = newest;
    history[0] = 0;
}
