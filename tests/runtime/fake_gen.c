/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_gen.c: a generator with the tests' registry. With folders it has one
** more recipe's kernel, k_spec, whose source is C.
**
** A folder named "bad" is an error in a spec. Kernels have no key before their
** source was asked for. $FAKE_GEN_KEY replaces the keys of all of them, as a
** library of another build would; with $FAKE_GEN_FAIL no source can be
** generated.
*/
#include "fake.h"

#include "gen.h"
#include "kernels.h"

#include <string.h>

static const struct qn_kernel kernels[] = {
    TEST_KERNELS(NULL),
    HOST_KERNEL("k_spec", "bf16", QUERN_FPROP, QUERN_AXIS_M, QUERN_MAJOR_K,
                QUERN_MAJOR_K, QUERN_F32, NULL),
    HOST_KERNEL("k_broken", "bf16", QUERN_DGRAD, QUERN_AXIS_M, QUERN_MAJOR_K,
                QUERN_MAJOR_MN, QUERN_F32, NULL),
};

#define NKERNELS ((int)(sizeof kernels / sizeof kernels[0]))

struct qg {
    struct qn_kernel kernels[NKERNELS];
    struct quern_registry registry;
    char text[1024], diagnostics[256];
};

/* Named otherwise than the real one's: the loader may know that already. A
   constructor would not tell: the library may still be loaded. */
static int open_fake(const char *const *dirs, int count, struct qg **out)
{
    struct qg *qg = calloc(1, sizeof *qg);

    fake_log("gen", "open", "");
    *out = qg;
    if (!qg)
        return 1;
    memcpy(qg->kernels, kernels, sizeof kernels);
    for (int i = 0; i < NKERNELS; i++)
        qg->kernels[i].key = NULL;
    qg->registry = (struct quern_registry){
        .hash = count ? "hash with specs" : "hash",
        .recipes = test_recipes,
        .nrecipes = sizeof test_recipes / sizeof test_recipes[0],
        .kernels = qg->kernels,
        .nkernels = count ? NKERNELS : NKERNELS - 2,
        .rejected = test_rejected,
        .nrejected = 1};
    if (count && !strcmp(dirs[0], "bad")) {
        strcpy(qg->diagnostics, "bad/recipes/x.lua:3: error: the test's\n"
                                "bad/recipes/x.lua:4: error: another\n");
        return 1;
    }
    return 0;
}

int qg_open(const char *const *dirs, int count, struct qg **out)
{
    return open_fake(dirs, count, out);
}

int qg_open_lazily(struct qg **out)
{
    return open_fake(NULL, 0, out);
}

void qg_close(struct qg *qg)
{
    free(qg);
}

const char *qg_diagnostics(const struct qg *qg)
{
    return qg->diagnostics;
}

const struct quern_registry *qg_registry(const struct qg *qg)
{
    return &qg->registry;
}

const struct qn_kernel *qg_source_kernel(struct qg *qg, const char *name)
{
    for (int i = 0; i < qg->registry.nkernels; i++)
        if (!strcmp(qg->kernels[i].name, name))
            return &qg->kernels[i];
    return NULL;
}

/* The host kernel writes its worker's number where d points. */
static const char spec_source[] =
    "void k_spec(void *const *params, int worker, int workers)\n"
    "{\n"
    "    float *d = *(float *const *)params[2];\n"
    "    int m = *(const int *)params[10];\n"
    "    for (int i = worker; i < m; i += workers)\n"
    "        d[i] = (float)(worker + 1);\n"
    "}\n";

static void set_key(struct qg *qg, const char *kernel)
{
    const char *key = getenv("FAKE_GEN_KEY");

    for (int i = 0; i < NKERNELS; i++)
        if (!strcmp(kernels[i].name, kernel))
            qg->kernels[i].key = key ? key : kernels[i].key;
}

int qg_source(struct qg *qg, const char *kernel, const char **text,
              size_t *length)
{
    fake_log("gen", "source", kernel);
    if (getenv("FAKE_GEN_FAIL")) {
        strcpy(qg->diagnostics, "test.cu:7: error: the test's\n");
        return 1;
    }
    set_key(qg, kernel);
    if (!strcmp(kernel, "k_spec"))
        snprintf(qg->text, sizeof qg->text, "%s", spec_source);
    else
        snprintf(qg->text, sizeof qg->text, "source of %s%s", kernel,
                 !strcmp(kernel, "k_spills") ? " SPILLS"
                 : !strcmp(kernel, "k_next") ? " tcgen05"
                                             : "");
    *text = qg->text;
    *length = strlen(qg->text);
    return 0;
}
