/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_epilogue.c: the kernels that make D of a product's sums, as
   plain C: from the sums of the host's product they make the bytes that the
   host's kernels with the same epilogue do: D, P, and the sums for dbias and
   dprob. */
#include "embedded.h"
#include "choose/values.h"
#include "problem/geometry.h"
#include "test_protocol.h"
#include "base/types.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS = 5, ROWS = 171, K = 24, MOST = 320, GAP = 8, CTAS = 3 };
/* The last 3 rows belong to no group. */
static const int32_t lengths[GROUPS] = {17, 0, 130, 1, 20};

typedef void twin_fn(const void *const *values, unsigned ctas);

static const char *const types[] = {"bf16", "f16", "f32"};

/* ------------------------------------------------------------------- twins */

/* As specs/kernels/quantize.lua has them, for the host. */
static const char spec[] =
    "local sizes = { 'groups', 'm', 'k', 'noop', 'first_dims', 'offsets',\n"
    "                'sizes_bytes' }\n"
    "local given = { 'd', 'd_stride', 'in', 'in_stride', 'probability',\n"
    "                'activation', 'interleave', 'limit', 'slope', 'shift',\n"
    "                'saved', 'saved_stride' }\n"
    "for _, form in ipairs { 'forward', 'backward' } do\n"
    "  local back = form == 'backward'\n"
    "  kernels('epilogue_' .. form) {\n"
    "    op = 'epilogue', of = back and 'dy' or 'x', form = form,\n"
    "    input = { 'bf16', 'f16', 'f32' }, element = bf16, scale = 'none',\n"
    "    arch = 'host', template = 'quantize/epilogue.cu',\n"
    "    params = table.join(given, back and { 'partials', 'row_partials' }\n"
    "                        or { 'bias' }, sizes),\n"
    "    derive 'threads' (function () return 64 end),\n"
    "    derive 'band' (function () return 1 end),\n"
    "    derive 'ctas' (function () return 8 end),\n"
    "  }\n"
    "end\n";

static struct qg *open_generator(void)
{
    struct qg_file *files =
        calloc((size_t)qg_embedded_count + 1, sizeof *files);
    struct qg_options options = {.files = files};
    struct qg *gen;

    assert_non_null(files);
    for (int i = 0; i < qg_embedded_count; i++)
        if (!strstr(qg_embedded[i].path, "specs/kernels/"))
            files[options.files_count++] = qg_embedded[i];
    files[options.files_count++] =
        (struct qg_file){"specs/kernels/epilogue.lua", spec, sizeof spec - 1};
    if (qg_open_with(&options, &gen))
        fail_msg("%s", gen ? qg_diagnostics(gen) : "no memory");
    free(files);
    return gen;
}

/* The kernel of the bf16 recipe. The file's `#include` precedes its text. */
static const struct qn_kernel *make(struct qg *gen, int back, const char *type,
                                    twin_fn **run)
{
    static const char shim[] = "#include \"shim_epilogue.h\"\n";
    char name[96], path[160], so[160], command[512];
    const struct qn_kernel *kernel;
    const char *text = NULL, *entry;
    size_t length;
    FILE *f;

    snprintf(name, sizeof name, "quern_bf16_epilogue_%s_%s_%s_host",
             back ? "dy" : "x", type, back ? "backward" : "forward");
    kernel = qg_source_kernel(gen, name);
    if (!kernel || qg_source(gen, name, &text, &length))
        fail_msg("%s: %s", name, qg_diagnostics(gen));
    entry = strstr(text, "extern \"C\" ");
    assert_non_null(entry);
    snprintf(path, sizeof path, "/tmp/quern-%d-%s.c", (int)getpid(), name);
    snprintf(so, sizeof so, "/tmp/quern-%d-%s.so", (int)getpid(), name);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s%.*s%s", shim, (int)(entry - text), text,
            entry + strlen("extern \"C\" "));
    twin_write_call(f, kernel, "twin_epilogue.h");
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -ffp-contract=off -w -shared -fPIC "
             "-Itests/protocol -o %s %s",
             so, path);
    assert_int_equal(system(command), 0);
    *(void **)run = dlsym(dlopen(so, RTLD_NOW | RTLD_LOCAL), "twin_launch");
    unlink(path);
    unlink(so);
    assert_non_null(*run);
    return kernel;
}

/* -------------------------------------------------------------------- data */

static struct {
    struct quern_context *ctx;
    float a[ROWS * K], b[GROUPS * MOST * K], p[ROWS * 2 * MOST];
    float bias[GROUPS * MOST], probability[ROWS];
} all;

static float draw(void)
{
    static uint64_t state = 5;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int)(state >> 40 & 255) - 128) / 32;
}

static void fill(float *to, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = draw();
}

/* Numbers of up to 8 significant bits are the upper halves of fp32; f16 has
   another exponent. */
static void store(void *to, int type, int64_t i, float x)
{
    const uint32_t zero = 0;
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (type == QUERN_F32)
        ((uint32_t *)to)[i] = bits;
    else if (type == QUERN_BF16)
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else
        ((uint16_t *)to)[i] =
            (uint16_t)(bits << 1 == zero
                           ? bits >> 16
                           : (bits >> 16 & 0x8000) |
                                 ((bits >> 13 & 0x3ffff) - (112 << 10)));
}

static void *rows_of(const float *from, int64_t rows, int64_t width,
                     int64_t stride, int type)
{
    char *to = malloc((size_t)(rows * stride) * 4 + 64);

    assert_non_null(to);
    memset(to, 0x5a, (size_t)(rows * stride) * 4 + 64);
    for (int64_t i = 0; from && i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            store(to, type, i * stride + j, from[i * width + j]);
    return to;
}

/* A run of the host, or of the twin. */
struct run {
    struct qn_problem problem;
    struct qn_args args;
    int64_t gap;
    float dbias[GROUPS * 2 * MOST], dprob[ROWS];
};

static void take(struct run *r, struct qn_tensor *t, const float *from)
{
    t->stride = t->shape[1] + r->gap;
    t->bytes = (size_t)(ROWS * t->stride * qn_type_bits(t->type) / 8);
    t->data = rows_of(from, ROWS, t->shape[1], t->stride, t->type);
}

/* Operands, and room for results. */
static void begin(struct run *r, const struct qn_problem *p, int64_t gap)
{
    struct qn_description need;
    const int back = qn_geometry_backward(p);

    memset(r, 0, sizeof *r);
    r->problem = *p;
    r->gap = gap;
    if (qn_problem_describe(all.ctx, p, &need))
        fail_msg("%s", qn_errmsg(all.ctx));
    r->args = need.args;
    r->args.a.first_dims = lengths;
    r->args.a.data = rows_of(all.a, ROWS, K, K, r->args.a.type);
    r->args.b.data = rows_of(all.b, GROUPS * p->n, K, K, r->args.b.type);
    take(r, &r->args.d, NULL);
    if (qn_geometry_has(p, QN_ROLE_P))
        take(r, &r->args.p, back ? all.p : NULL);
    r->args.bias = p->bias ? all.bias : NULL;
    r->args.probability = p->probability ? all.probability : NULL;
    r->args.dbias = p->dbias ? r->dbias : NULL;
    r->args.dprob = p->dprob ? r->dprob : NULL;
    r->args.limit = 1.5f;
    r->args.workspace = calloc(1, need.workspace_bytes);
    assert_non_null(r->args.workspace);
}

static void finish(struct run *r)
{
    free(r->args.a.data);
    free(r->args.b.data);
    free(r->args.d.data);
    free(r->args.p.data);
    free(r->args.workspace);
}

static void run_on_host(struct run *r)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_plan *plan;

    if (qn_plan(all.ctx, &r->problem, &options, &plan) ||
        qn_run(plan, &r->args, NULL))
        fail_msg("%s", qn_errmsg(all.ctx));
    qn_plan_free(plan);
}

/* -------------------------------------------------------------------- twin */

/* The sums that the twin leaves. */
static float partials[(ROWS / 32 + 4 * GROUPS + 4) * 2 * MOST],
    row_partials[MOST / 64 * ROWS];

/* COUPLED: row partials */
static void add_up(struct run *r, int64_t width)
{
    int strip = 0, row = 0;

    for (int g = 0; g < GROUPS; g++) {
        const int strips = (lengths[g] + 31) / 32;

        for (int64_t c = 0; c < width && r->problem.dbias; c++) {
            float sum = -0.0f;

            for (int i = 0; i < strips; i++)
                sum += partials[(strip + i) * width + c];
            r->dbias[g * width + c] = strips ? sum : 0;
        }
        strip += (lengths[g] + 127) / 128 * 4;
        for (int i = 0; i < lengths[g] && r->problem.dprob; i++, row++) {
            float sum = -0.0f;

            for (int64_t j = 0; j * 64 < r->problem.n; j++)
                sum += row_partials[j * ROWS + row];
            r->dprob[row] = sum;
        }
    }
}

static void run_twin(twin_fn *twin, struct run *r, const struct run *sums)
{
    const struct qn_problem *p = &r->problem;
    const void *params[QN_PARAM_COUNT];
    struct qn_values v = {.groups = GROUPS, .m = ROWS, .sizes_bytes = 4};

    v.in = sums->args.d.data;
    v.in_stride = sums->args.d.stride;
    v.d = r->args.d.data;
    v.d_stride = r->args.d.stride;
    v.saved = r->args.p.data;
    v.saved_stride = r->args.p.stride;
    v.bias = r->args.bias;
    v.probability = r->args.probability;
    v.activation = p->activation;
    v.interleave = p->interleave;
    v.limit = r->args.limit;
    v.slope = r->args.slope;
    v.shift = r->args.shift;
    v.first_dims = lengths;
    v.k = (int)(qn_geometry_backward(p) ? p->n : r->args.d.shape[1]);
    v.partials = p->dbias ? partials : NULL;
    v.row_partials = p->dprob ? row_partials : NULL;
    for (int i = 0; i < QN_PARAM_COUNT; i++)
        params[i] = (const char *)&v + qn_value_offsets[i];
    twin(params, CTAS);
    add_up(r, r->args.d.shape[1]);
}

/* ------------------------------------------------------------------- cases */

static void compare(const char *line, const char *what, const void *made,
                    const void *right, size_t bytes)
{
    const unsigned char *a = made, *b = right;

    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s: byte %zu of %s is %d, the host's is %d", line, i,
                     what, a[i], b[i]);
}

static void try_line(twin_fn *twin, const char *line, int64_t gap)
{
    static struct run host, made, sums;
    struct qn_problem p, plain;

    if (qn_problem_parse(all.ctx, line, &p))
        fail_msg("%s: %s", line, qn_errmsg(all.ctx));
    plain = p;
    plain.bias = plain.activation = plain.interleave = plain.probability = 0;
    plain.saved = plain.dbias = plain.dprob = 0;
    plain.d_type = QUERN_F32;
    begin(&sums, &plain, gap % 8 ? 1 : 0);
    begin(&host, &p, gap);
    begin(&made, &p, gap);
    run_on_host(&sums);
    run_on_host(&host);
    run_twin(twin, &made, &sums);
    compare(line, "D", made.args.d.data, host.args.d.data, host.args.d.bytes);
    if (p.saved)
        compare(line, "P", made.args.p.data, host.args.p.data,
                host.args.p.bytes);
    compare(line, "dbias", made.dbias, host.dbias, sizeof host.dbias);
    compare(line, "dprob", made.dprob, host.dprob, sizeof host.dprob);
    finish(&sums);
    finish(&host);
    finish(&made);
}

/* Widths of whole pieces of 16 bytes, of rows and of operands, and others. */
static const struct {
    int results, interleave, gap;
} shapes[] = {{136, 0, 0}, {144, 1, 8}, {64, 8, 0},  {36, 3, 0},
              {33, 0, 0},  {136, 0, 1}, {138, 1, 0}, {144, 16, 8}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void try_all(twin_fn *twin, int back, const char *type)
{
    static const char *const more[2][4] = {
        {"", " bias=1 prob=1 saved=1", " saved=1", " bias=1"},
        {" prob=1 dbias=1 dprob=1", "", " dbias=1", " prob=1 dprob=1"}};
    const char *recipe = strcmp(type, "f16") ? "bf16" : "fp16";
    char line[256];

    for (int a = back; a < QUERN_ACTIVATION_COUNT; a++)
        for (int i = 0; i < SHAPES; i++) {
            const int two = qn_activation_operands(a) == 2;
            const int n = shapes[i].results * (two && !back ? 2 : 1);
            const char *with = a       ? more[back][(i + a) % 4]
                               : i % 2 ? " bias=1 prob=1"
                                       : " bias=1";

            if (shapes[i].interleave && !two)
                continue;
            snprintf(line, sizeof line,
                     "%s %s g=%d m=%d n=%d k=%d d=%s layout=tn align=2%s",
                     back ? "dgrad" : "fprop", recipe, GROUPS, ROWS, n, K, type,
                     with);
            if (a)
                snprintf(line + strlen(line), sizeof line - strlen(line),
                         " activation=%s interleave=%d", qn_activation_name(a),
                         shapes[i].interleave);
            try_line(twin, line, shapes[i].gap);
        }
}

TEST(epilogues)
{
    const struct quern_open_options options = {.cache = "", .tune = ""};
    struct qg *gen = open_generator();

    assert_int_equal(qn_open(&options, &all.ctx), QUERN_OK);
    fill(all.a, ROWS * K);
    fill(all.b, GROUPS * MOST * K);
    fill(all.p, ROWS * 2 * MOST);
    fill(all.bias, GROUPS * MOST);
    fill(all.probability, ROWS);
    for (int back = 0; back < 2; back++)
        for (int i = 0; i < 3; i++) {
            twin_fn *twin;

            make(gen, back, types[i], &twin);
            try_all(twin, back, types[i]);
        }
    qn_close(all.ctx);
    qg_close(gen);
}
