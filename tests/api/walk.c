/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c: every line that the launches' list has, for every recipe, and
   layouts. */
#include "api.h"

#include "launches/lines.h"
#include "base/context.h"

/* R, 1000 and 512 are replaced as in the launches' patterns. */
static const char *const layouts[] = {
    "fprop R g=4 m=1000 n=512 k=512 layout=nn align=2",
    "fprop R g=4 m=1000 n=512 k=512 layout=tt alpha=any beta=any",
    "fprop R g=4 m=1000 n=512 k=512 beta=any pointers=b",
    "fprop R g=4 m=512 n=1000 k=512 ragged=n beta=any pointers=a",
    "fprop R g=4 m=512 n=1000 k=512 ragged=n layout=nt",
    "fprop R g=4 m=512 n=512 k=1000 ragged=k layout=tn",
    "wgrad R g=4 m=512 n=512 k=1000 layout=tt align=4",
    "wgrad R g=4 m=512 n=512 k=1000 layout=nn align=8 beta=any pointers=cd",
    "fprop R g=4 m=512 n=512 k=512 ragged=none pointers=abd",
    "dgrad R g=4 m=1000 n=512 k=512 layout=tt",
    "quantize R of=x g=4 m=1000 k=512 in=f16 copies=both sizes=fixed",
    "mlp R g=4 m=1000 hidden=512 ffn=512 bias=1 prob=1 recompute=1",
};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0], FEWEST = 700 };

/* Those for kernels that depend on sizes have other ones: they are left out. */
static const char *pattern(int i)
{
    static const char *own[256];
    static int n;

    for (int j = n ? -1 : 0; j >= 0 && launch_patterns[j]; j++)
        if (!strstr(launch_patterns[j], "g=") ||
            strstr(launch_patterns[j], "g=4 "))
            own[n++] = launch_patterns[j];
    return i < n ? own[i] : i < n + LAYOUTS ? layouts[i - n] : NULL;
}

/* Copy it with other numbers; what says how it is launched is left out. */
static void spell(const char *from, const char *recipe, int groups,
                  int64_t rows, int features, char *to, size_t size)
{
    size_t used = 0;

    for (; *from && *from != '|' && used + 48 < size; from++) {
        if (*from == 'R') {
            used += (size_t)sprintf(to + used, "%s", recipe);
        } else if (!strncmp(from, "g=4 ", 4) && from[-1] == ' ') {
            used += (size_t)sprintf(to + used, "g=%d", groups);
            from += 2;
        } else if (!strncmp(from, "1000", 4)) {
            used += (size_t)sprintf(to + used, "%lld", (long long)rows);
            from += 3;
        } else if (!strncmp(from, "512", 3) || !strncmp(from, "256", 3)) {
            used += (size_t)sprintf(to + used, "%d", features);
            from += 2;
        } else {
            to[used++] = *from;
        }
    }
    to[used] = 0;
}

struct quern_context *api_open(void)
{
    const struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    struct quern_context *ctx;

    unsetenv("QUERN_GEN");
    test_expect(quern_open(&options, &ctx), QUERN_OK, "");
    return ctx;
}

int api_line_next(struct quern_context *ctx, int groups, int64_t rows,
                  int features, struct api_line *line)
{
    const int recipes = ctx->base->nrecipes;

    for (;;) {
        const char *text = pattern(line->index / recipes);

        if (!text)
            return 0;
        spell(text, ctx->base->recipes[line->index % recipes].name, groups,
              rows, features, line->text, sizeof line->text);
        line->index++;
        if (qn_api_line(ctx, line->text, &line->line))
            assert_non_null(strchr(quern_errmsg(), ' '));
        else if (share_has(line->valid++))
            return 1;
    }
}

void api_line_enough(const struct api_line *line)
{
    if (line->valid < FEWEST)
        fail_msg("only %d lines are valid", line->valid);
    print_message("  %d lines\n", line->valid);
}
