/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_cublaslt.c: the backend cublaslt: every layout, ragged axis, type and
   factor, with and without gaps between rows. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/element.h"
#include "product/plan.h"
#include "support/exact.h"

enum { ELEMENTS = 1 << 16 };

/* In the order a, b, c, d. */
static float host[EXACT_ROLES][ELEMENTS], want[ELEMENTS];
static struct gpu_buffer buffers[EXACT_ROLES], factors, workspace;

static void fill(const struct run *r, int role)
{
    exact_fill(r, role, sizeof host[role],
               (uint32_t)gpu_options.seed + (uint32_t)role);
    gpu_buffer_upload(&buffers[role], host[role]);
}

/* On the device. The library's code for a problem that it does not take. */
static int prepare(struct run *r, const struct form *f)
{
    void *const data[] = {host[EXACT_A], host[EXACT_B], host[EXACT_C],
                          host[EXACT_D]};
    struct qn_tensor *const tensors[] = {&r->args.a, &r->args.b, &r->args.c,
                                         &r->args.d};
    const int any = f->beta == QUERN_BETA_ANY;
    const gpu_address alpha = factors.data, beta = alpha + sizeof exact_alphas;
    int code = exact_prepare(gpu_context, f, data, sizeof host[0], r);

    if (code)
        return code;
    for (int role = 0; role < EXACT_ROLES; role++) {
        if (!tensors[role]->data)
            continue;
        tensors[role]->data = (void *)(uintptr_t)buffers[role].data;
        fill(r, role);
    }
    r->args.host_sizes = f->ragged ? r->sizes : NULL;
    r->args.alpha = f->alpha ? (const float *)(uintptr_t)alpha : NULL;
    r->args.beta = any ? (const float *)(uintptr_t)beta : NULL;
    r->args.workspace = (void *)(uintptr_t)workspace.data;
    return QUERN_OK;
}

/* NULL, or the error of D or around it. */
static const char *compare(const struct run *r)
{
    const char *bad = gpu_buffer_guarded(&buffers[EXACT_D], "d");
    const size_t count =
        sizeof want * 8 / (r->p.d_type == QUERN_F32 ? 32u : 16u);

    gpu_buffer_download(&buffers[EXACT_D], host[EXACT_D]);
    if (bad || !memcmp(host[EXACT_D], want, sizeof want))
        return bad;
    for (size_t i = 0; i < count; i++) {
        float got = qn_element_load(host[EXACT_D], r->p.d_type, i);
        float right = qn_element_load(want, r->p.d_type, i);

        if (memcmp(&got, &right, sizeof got))
            return gpu_text("element %zu of D is %g, not %g", i, (double)got,
                            (double)right);
    }
    return NULL;
}

/* Run it twice: the second time, algorithms are remembered. */
static const char *multiply(struct run *r, const struct qn_plan *plan)
{
    const char *bad = NULL;

    for (int turn = 0; turn < 2 && !bad; turn++) {
        fill(r, EXACT_D);
        if (r->form->beta == QUERN_BETA_ZERO) { /* D is not read */
            memset(host[EXACT_D], QT_POISON, sizeof host[EXACT_D]);
            gpu_buffer_upload(&buffers[EXACT_D], host[EXACT_D]);
        }
        exact_refer(r, want, sizeof want);
        if (qn_run(plan, &r->args, NULL) || qn_check(plan, &r->args, NULL))
            return gpu_text("%s", quern_errmsg());
        gpu_wait(NULL, "a product of cuBLASLt");
        bad = compare(r);
    }
    return bad;
}

/* 0 if the machine has no cuBLASLt. */
static int try_form(const struct form *f)
{
    static const struct qn_plan_options options = {.backend =
                                                       QUERN_BACKEND_CUBLASLT};
    struct quern_plan_info info;
    struct qn_plan *plan = NULL;
    struct run r;
    const char *bad;
    char text[256];
    int code = prepare(&r, f);

    if (!code)
        code = qn_plan(gpu_context, &r.p, &options, &plan);
    if (code == QUERN_EMISSING)
        return 0;
    bad = code ? quern_errmsg() : NULL;
    if (!code) {
        qn_plan_info(plan, &info);
        if (info.workspace_bytes > workspace.bytes)
            gpu_lost("the workspace is larger than this test expects");
        bad = multiply(&r, plan);
    }
    qn_problem_print(&r.p, text, sizeof text);
    gpu_record(bad ? gpu_text("%s wide=%d scalars=%d: %s", text, f->wide,
                              f->scalars, bad)
                   : NULL);
    qn_plan_free(plan);
    return 1;
}

/* Layouts x ragged axes x types x factors x gaps x sizes. */
static void try_all(void)
{
    static const struct {
        const char *recipe;
        int d_type;
    } types[] = {{"bf16", QUERN_BF16},
                 {"bf16", QUERN_F32},
                 {"fp16", QUERN_F16},
                 {"fp16", QUERN_F32}};
    static const int scalars[][3] = {
        /* alpha, beta, how many */
        {0, QUERN_BETA_ZERO, 0},     {0, QUERN_BETA_ONE, 0},
        {0, QUERN_BETA_ANY, GROUPS}, {1, QUERN_BETA_ZERO, 1},
        {1, QUERN_BETA_ONE, GROUPS}, {1, QUERN_BETA_ANY, GROUPS},
    };
    const int step = gpu_options.quick ? 5 : 1;

    for (int i = 0; i < 4 * 4 * 4 * 6 * 2 * 2; i += step) {
        const int *scalar = scalars[i / 64 % 6];
        const struct form f = {
            .recipe = types[i / 16 % 4].recipe,
            .d_type = types[i / 16 % 4].d_type,
            .a_major = i & 1,
            .b_major = i >> 1 & 1,
            .ragged = i / 4 % 4,
            .alpha = scalar[0],
            .beta = scalar[1],
            .scalars = scalar[2],
            .wide = i / 384 % 2 * 2,
            .scale = i / 768 ? 8 : 1,
        };

        if (!try_form(&f)) {
            gpu_skip("needs libcublasLt.so.12 or .13");
            return;
        }
    }
}

void gpu_cublaslt(void)
{
    float values[2][GROUPS];

    memcpy(values[0], exact_alphas, sizeof exact_alphas);
    memcpy(values[1], exact_betas, sizeof exact_betas);
    for (int i = 0; i < EXACT_ROLES; i++)
        gpu_buffer_make(&buffers[i], sizeof host[i], GPU_GUARD);
    gpu_buffer_make(&factors, sizeof values, GPU_GUARD);
    gpu_buffer_upload(&factors, values);
    gpu_buffer_make(&workspace, 34 << 20, GPU_GUARD);
    gpu_buffer_workspace(&workspace);
    try_all();
    for (int i = 0; i < EXACT_ROLES; i++)
        gpu_buffer_free(&buffers[i]);
    gpu_buffer_free(&factors);
    gpu_buffer_free(&workspace);
}
