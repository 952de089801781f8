/* SPDX-License-Identifier: Apache-2.0 */
/* The device code's protocol on the host: each Hopper kernel is generated with
   shim.h in place of the instructions, compiled as plain C and launched over
   many group sizes. Each tile is stored once, with coordinates in its group. */
#include "share.h"
#include "test_protocol.h"
#include "test_protocol_forms.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* --------------------------------------------------------------- tests */

static void expect_right(const char *wrong)
{
    if (*wrong)
        fail_msg("%s", wrong);
}

/* Values drawn anew each time. */
static const char *run_drawn(const struct twin *twin)
{
    const int ragged = twin->kernel->ragged != QUERN_AXIS_NONE;
    const char *wrong = twin_run_crowd(twin, 6);

    if (!*wrong && ragged)
        wrong = twin_run_many_groups(twin);
    if (!*wrong && ragged)
        wrong = twin_run_lies(twin);
    return wrong;
}

/* Kernels that show every defect below, in the order of their cost. */
static const char *run_telling(const struct twin *twin)
{
    const char *wrong = run_drawn(twin);

    if (!*wrong)
        wrong = twin_run_small_sizes(twin, 0, 37);
    if (!*wrong)
        wrong = twin_run_bands(twin);
    return wrong;
}

static void run_everything(const struct twin *twin)
{
    expect_right(run_telling(twin));
    expect_right(twin_run_small_sizes(twin, 0, 13));
    if (twin->kernel->ragged == QUERN_AXIS_NONE)
        return;
    expect_right(twin_run_one_group_holds_all(twin));
    expect_right(twin_run_gaps(twin, 3));
}

/* Kernels that share the scheduler and the stores with those above. */
static void run_enough(const struct twin *twin)
{
    expect_right(twin_run_crowd(twin, 1));
    expect_right(twin_run_small_sizes(twin, twin->number % 97, 97));
    if (twin->number % 3 == 0)
        expect_right(twin_run_lies(twin));
}

/* Twins are compiled without sanitizers, which watch the generator and the
   runtime's maps instead: with them each form is launched a few times, and the
   rest is left to the other configuration. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1, FORMS_APART = 4 };
#else
enum { SANITIZED = 0, FORMS_APART = 1 };
#endif

static void run_few(const struct twin *twin)
{
    expect_right(twin_run_crowd(twin, 1));
    expect_right(twin_run_small_sizes(twin, twin->number % 97, 97));
    if (twin->kernel->ragged != QUERN_AXIS_NONE)
        expect_right(twin_run_lies(twin));
}

/* One is compiled while another runs. */
static void run_forms(const struct form *const *forms, int count,
                      void (*run)(const struct twin *))
{
    struct qg *gen = twin_open_generator(NULL, NULL);
    struct twin next = {0}, twin;

    for (int i = 0; i <= count; i++) {
        if (i < count && !share_has(i))
            continue;
        twin = next;
        if (i < count)
            twin_begin(gen, find_kernel(gen, *forms[i]),
                       SANITIZED ? "-O0" : "-O2", i, &next);
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        (SANITIZED ? run_few : run)(&twin);
    }
    qg_close(gen);
}

#define TEST_FORMS(name, run, ...)                                             \
    TEST(name)                                                                 \
    {                                                                          \
        const struct form *const forms[] = {__VA_ARGS__};                      \
        run_forms(forms, COUNT(forms), run);                                   \
    }

TEST_FORMS(ragged_m, run_everything, &M_STORE, &M_TURNS, &M_PAIRS, &M_STACKS,
           &M_STACKS_TURNS, &M_NARROW, &M_NARROW_TURNS, &M_ALPHA, &M_SCALE)
TEST_FORMS(activations, run_enough, &M_HALVES, &M_HALVES_TURNS, &M_RUNS,
           &M_RUNS_SHORT, &M_ALTERNATING, &M_SINGLE, &M_BIAS)
TEST_FORMS(ragged_k, run_everything, &K_STORE, &K_TURNS, &K_PAIRS, &K_ADD,
           &K_READ, &K_FETCH, &K_FETCH_SIX, &K_SCALE)
TEST_FORMS(scaled_m, run_everything, &TENSOR_M, &TENSOR_M_TURNS, &ROW_M,
           &ROW_M_SCALE, &BLOCK_M, &BLOCK_M_TALL, &BLOCK_M_HALVES,
           &BLOCK_M_WHOLE, &ROW_M_WHOLE)
TEST_FORMS(quantizers, run_everything, &BLOCK_M_MAINLOOP,
           &BLOCK_M_MAINLOOP_HALVES, &BLOCK_M_MAINLOOP_PAIRS)
TEST_FORMS(scaled_k, run_everything, &TENSOR_K, &TENSOR_K_FETCH, &ROW_K,
           &BLOCK_K, &BLOCK_K_ADD, &BLOCK_K_SCALE)
TEST_FORMS(swapped, run_enough, &CODES_M_SWAPPED, &CODES_M_SWAPPED_GLOBAL,
           &CODES_M_SWAPPED_TILES, &CODES_M_SWAPPED_MIXED,
           &CODES_M_SWAPPED_EITHER, &CODES_M_SWAPPED_EITHER_MORE,
           &CODES_M_SWAPPED_MORE)
TEST_FORMS(dequantized, run_enough, &CODES_M, &CODES_M_GLOBAL, &CODES_M_SHORT,
           &CODES_K, &CODES_K_ADD, &CODES_K_SCALE, &CODES_M_REGISTERS,
           &CODES_K_REGISTERS, &CODES_M_TILES, &CODES_K_TILES, &CODES_M_MIXED,
           &CODES_M_REGISTERS_F16)

/* These kernels show every defect of merging. */
static void run_merged(const struct twin *twin)
{
    expect_right(run_telling(twin));
}

TEST_FORMS(merged, run_merged, &MERGED, &MERGED_FETCH, &MERGED_BLOCK)
TEST_FORMS(uniform, run_everything, &UNIFORM, &UNIFORM_TURNS)

/* A few launches of each form that the specs can express, or of each fourth one
   with sanitizers. One is compiled while another runs. */
TEST(each_form)
{
    struct qg *gen = twin_open_generator(NULL, NULL);
    const struct quern_registry *r = qg_registry(gen);
    struct twin next = {0}, twin;
    int forms = 0, form = 0, count = 0;

    for (int i = 0; i <= r->nkernels; i++) {
        const struct qn_kernel *kernel = NULL;

        if (i < r->nkernels &&
            /* the interpreter of PTX has those that gather */
            (qn_tensormap_takes(&r->kernels[i], QN_PARAM_gather) ||
             !(kernel = qt_form_take(r, i, forms)) || forms++ % FORMS_APART ||
             !share_has(form++)))
            continue;
        twin = next;
        if (kernel)
            twin_begin(gen, kernel, "-O0", form, &next);
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        expect_right(twin_run_small_sizes(&twin, twin.number % 179, 179));
        count++;
    }
    qg_close(gen);
    assert_true(count > 0);
}

/* ------------------------------------------------------------- defects */

#include "test_protocol_defects.h"

/* A wait that is missing shows where the order of threads is unlucky: each
   round draws sizes, and with them the order, anew. */
static int is_seen(const struct twin *twin)
{
    enum { ROUNDS = 32 };

    if (*run_telling(twin))
        return 1;
    for (int i = 1; i < ROUNDS; i++)
        if (*run_drawn(twin))
            return 1;
    return 0;
}

/* The forms are those that passed the same launches above. */
static void see_defects(const struct planted *planted, int count)
{
    struct twin next = {0}, twin;
    struct qg *gen = NULL, *gen_next = NULL;
    int passed = 0;

    if (SANITIZED) {
        print_message("skip: needs no sanitizer: defects are looked for once, "
                      "in the other configuration\n");
        skip();
    }
    for (int i = 0; i <= count; i++) {
        if (i < count && !share_has(i))
            continue;
        twin = next;
        gen = gen_next;
        if (i < count) {
            const struct form *form = planted[i].form;
            gen_next = twin_open_generator(
                &planted[i].defect, form->recipe ? form->recipe : "bf16");
            twin_begin(gen_next, find_kernel(gen_next, *form), "-O0", i, &next);
        }
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        if (!is_seen(&twin)) {
            const struct defect *d = &planted[twin.number].defect;
            print_error("%s with \"%s\" for \"%s\" passes\n", d->file, d->to,
                        d->from);
            passed++;
        }
        qg_close(gen);
    }
    assert_int_equal(passed, 0);
}

/* Not by shares: who edits a template learns of it from `make test`. */
TEST(defects_are_up_to_date)
{
    const struct {
        const struct planted *planted;
        int count;
    } lists[] = {{defects, COUNT(defects)},
                 {activation_defects, COUNT(activation_defects)},
                 {quantizer_defects, COUNT(quantizer_defects)},
                 {dequantizer_defects, COUNT(dequantizer_defects)}};
    int missing = 0;

    for (int list = 0; list < COUNT(lists); list++)
        for (int i = 0; i < lists[list].count; i++) {
            const struct defect *d = &lists[list].planted[i].defect;
            if (twin_has_text(d))
                continue;
            print_error("%s has no \"%s\"\n", d->file, d->from);
            missing++;
        }
    assert_int_equal(missing, 0);
}

#define TEST_DEFECTS(list)                                                     \
    TEST(list##_are_seen)                                                      \
    {                                                                          \
        see_defects(list, COUNT(list));                                        \
    }

TEST_DEFECTS(defects)
TEST_DEFECTS(activation_defects)
TEST_DEFECTS(quantizer_defects)
TEST_DEFECTS(dequantizer_defects)

/* With a name, only the tests of that name; it may hold a * for anything. */
int main(int argc, char **argv)
{
    if (share_open() || atexit(share_print))
        return 2;
    return test_run("protocol", argc > 1 ? argv[1] : NULL, twin_make_folder,
                    twin_remove_folder);
}
