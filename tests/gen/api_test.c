/* SPDX-License-Identifier: Apache-2.0 */
/* api_test.c: messages of calls, and the registry's descriptors. */
#include "test_gen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The templates of the toy, and specs that must be right. */
static struct qg *open_golden(const char *specs)
{
    struct files files = {.count = 0};
    struct qg *q;

    files_read(&files, specs, "specs");
    files_read(&files, "tests/gen/golden/toy/templates", "templates");
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    files_free(&files);
    return q;
}

/* Each call forgets the message of the one before. */
TEST(calls)
{
    struct qg *q = open_golden("tests/gen/golden/toy/specs");
    const char *text, *again;
    size_t length;

    assert_int_equal(
        qg_source(q, "quern_bf16_fprop_tn_m_bf16_hots", &text, &length), 1);
    assert_string_equal(qg_diagnostics(q),
                        "error: no kernel is called "
                        "'quern_bf16_fprop_tn_m_bf16_hots'; did you mean "
                        "'quern_bf16_fprop_tn_m_bf16_host'?\n");
    assert_int_equal(qg_source(q, "x", &text, &length), 1);
    assert_string_equal(
        qg_diagnostics(q),
        "error: no kernel is called 'x'; quern list prints them\n");
    assert_int_equal(
        qg_source(q, "quern_bf16_fprop_tn_m_bf16_host", &text, &length), 0);
    assert_string_equal(qg_diagnostics(q), "");
    assert_int_equal(
        qg_source(q, "quern_bf16_fprop_tn_m_bf16_host", &again, &length), 0);
    assert_ptr_equal(text, again);
    assert_int_equal(qg_rule_text(q, "bf16", QN_X, QG_C, &text, &length), 1);
    assert_string_equal(qg_diagnostics(q),
                        "error: recipe 'bf16' has no rule\n");
    assert_int_equal(qg_rule_text(q, "bf17", QN_X, QG_C, &text, &length), 1);
    assert_string_equal(qg_diagnostics(q),
                        "error: recipe 'bf17' does not exist\n");
    qg_close(q);
}

/* Rows that a reader looks for, and none without its words. */
TEST(field_rows)
{
    struct qg_field_row row;
    int rows = 0, nested = 0, entries = 0;

    for (; qg_field_row(rows, &row); rows++) {
        assert_true(strlen(row.statement) > 0 && strlen(row.field) > 0);
        assert_true(strlen(row.kind) > 0 && strlen(row.doc) > 0);
        assert_non_null(row.allowed);
        nested += !strcmp(row.statement, "recipe.element");
        entries += !strcmp(row.kind, "entry");
        if (!strcmp(row.statement, "recipe") && !strcmp(row.field, "accum")) {
            assert_string_equal(row.allowed, "f32");
            assert_int_equal(row.required, 0);
        }
    }
    assert_int_equal(nested, 3);
    assert_int_equal(entries, 5);
    assert_int_equal(rows, 68);
    assert_int_equal(qg_field_row(-1, &row), 0);
}

static const struct qn_kernel *find(const struct quern_registry *registry,
                                    const char *name)
{
    for (int i = 0; i < registry->nkernels; i++)
        if (!strcmp(registry->kernels[i].name, name))
            return &registry->kernels[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

/* Every field that the runtime reads. */
static void check_descriptor(const struct qn_kernel *k)
{
    assert_string_equal(k->spec, "specs/kernels/toy.lua:1");
    assert_string_equal(k->template_path, "toy/gemm.cu");
    assert_string_equal(k->recipe, "bf16");
    assert_string_equal(k->arch, "sm_90a");
    assert_string_equal(k->schedule, "pingpong");
    assert_string_equal(k->addend, "");
    assert_int_equal(k->op, QUERN_DGRAD);
    assert_int_equal(k->ragged, QUERN_AXIS_M);
    assert_int_equal(k->a.ragged, QUERN_AXIS_M);
    assert_int_equal(k->b.ragged, QUERN_AXIS_NONE);
    assert_int_equal(k->b.major, QUERN_MAJOR_MN);
    assert_int_equal(k->a.box[0], 32);
    assert_int_equal(k->a.box[1], 128);
    assert_int_equal(k->a.swizzle, 128);
    assert_int_equal(k->b.swizzle, 0);
    assert_int_equal(k->tile[0], 128);
    assert_int_equal(k->cluster[1], 1);
    assert_int_equal(k->stages, 8);
    assert_int_equal(k->threads, 1);
    assert_int_equal(k->nparams, 4);
    assert_int_equal(k->params[3], QN_PARAM_m);
    assert_int_equal(k->nrules, 1);
    assert_string_equal(k->rules[0].text, "k % 8 == 0");
    assert_null(k->cubin);
    assert_null(k->host);
}

/* Stands in for cubins that a build has compiled. */
static size_t seven(void *user, const struct qn_kernel *kernel)
{
    (void)user;
    return strstr(kernel->name, "pingpong") ? 7 : 0;
}

/* Linked kernels are declared; those not selected are absent. */
TEST(registry_text)
{
    struct qg *q = open_golden("tests/gen/golden/toy/specs");
    const struct quern_registry *registry = qg_registry(q);
    const struct qg_link link = {"my_kernels", 0, seven, NULL};
    const struct qg_selection some = {.arch = "sm_90a", .filter = "dgrad"};
    const char *text;
    size_t length;

    check_descriptor(find(registry, "quern_bf16_dgrad_nn_m_bf16_sm90a_pingpong_"
                                    "tile128x64x32_depth2"));
    assert_int_equal(registry->nrejected, 4);
    assert_string_equal(registry->rejected[0].reason,
                        "pingpong needs \"wide\" tiles");
    assert_int_equal(qg_registry_text(q, NULL, &link, &text, &length), 0);
    assert_int_equal(strlen(text), length);
    assert_non_null(strstr(text, registry->hash));
    assert_non_null(strstr(text, "const struct quern_registry my_kernels = "));
    assert_non_null(strstr(text, "depth2_cubin[7];"));
    assert_null(strstr(text, ".host = "));
    assert_int_equal(qg_registry_text(q, &some, &link, &text, &length), 0);
    assert_non_null(strstr(text, registry->hash));
    assert_null(strstr(text, "quern_bf16_fprop"));
    assert_null(strstr(text, "rejected"));
    qg_close(q);
}

/* The tree's specs and a file of one's own. */
static struct qg *open_user(const char *text)
{
    char dir[64], path[128];
    const char *const dirs[] = {dir};
    struct qg *q;

    snprintf(path, sizeof path, "%s/recipes", folder_make(dir));
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/recipes/user.lua", dir);
    file_write(path, text);
    qg_open(dirs, 1, &q);
    folder_remove(dir);
    assert_non_null(q);
    return q;
}

/* More than a house ever has, of those that most kernels are made for; the
   grids' bound by itself would stop at 40. */
TEST(many_recipes)
{
    static const char many[] =
        "for i = 1, 41 do\n"
        "  recipe(\"user\" .. i) {\n"
        "    element = { x = e4m3, w = e4m3, dy = e4m3 },\n"
        "    scale = blocked { type = e8m0, per = { k = 32 },\n"
        "      rule = function (amax) return e8m0_up(amax) end },\n"
        "    d = { bf16, f16, f32 } }\n"
        "end\n";
    struct qg *q = open_user(many);

    assert_string_equal(qg_diagnostics(q), "");
    find(qg_registry(q), "quern_user41_fprop_tn_m_bf16_activate_host");
    qg_close(q);
}

/* As many as docs/recipes.md promises; one more is a case of diagnostics. */
TEST(most_recipes)
{
    static const char most[] =
        "for i = 1, 128 do\n"
        "  recipe(\"r\" .. i) {\n"
        "    element = { x = bf16, w = bf16, dy = bf16 }, d = bf16 }\n"
        "end\n";
    struct files files = {.count = 0};
    struct qg *q;

    files_put(&files, "specs/recipes/x.lua", most, strlen(most));
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    assert_int_equal(qg_registry(q)->nrecipes, 128);
    qg_close(q);
    files_free(&files);
}

/* After the tree's specs Lua's stack is larger than at first, and moves when
   an error unwinds it. */
TEST(refusals_last)
{
    struct qg *q = open_user("local s = \"x\"\nwhile true do s = s .. s end\n");

    assert_non_null(strstr(qg_diagnostics(q),
                           "user.lua:2: error: a text has more than 65536 "
                           "bytes"));
    qg_close(q);
}
