/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: a kernel next to the one that a plan is for. */
#include "choose/step.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/session.h"
#include "code/jit.h"
#include "code/module.h"

#include <string.h>

/* The recipe's kernel for the device, or NULL. */
static const struct qn_candidate *find(const struct qn_session *s, int op,
                                       int of, const char *recipe, int backend)
{
    const struct qn_kernel_list list = qn_context_kernels(s->ctx, op, recipe);

    for (int i = 0; i < list.count; i++) {
        const struct qn_candidate *candidate = &s->ctx->kernels[list.at[i]];
        const struct qn_kernel *kernel = candidate->kernel;

        if (kernel->of == of &&
            qn_select_arch(kernel->arch, s->demand.device) &&
            (backend == QUERN_BACKEND_JIT || kernel->cubin))
            return candidate;
    }
    return NULL;
}

/* That kernel, of any backend; NULL: there is none for the session's GPU. */
static const struct qn_kernel *find_kernel(const struct qn_session *s, int op,
                                           int of, const char *recipe)
{
    const struct qn_candidate *found =
        find(s, op, of, recipe, QUERN_BACKEND_JIT);

    return found ? found->kernel : NULL;
}

int qn_step_compiles(const struct qn_session *s, int backend)
{
    return backend == QUERN_BACKEND_AOT &&
           s->options.backend == QUERN_BACKEND_AUTO;
}

/* None, or none that was linked. */
static int none(const struct qn_session *s, int op, int of, const char *does,
                const char *recipe, int backend)
{
    const struct qn_kernel *other = find_kernel(s, op, of, recipe);
    int code = qn_error_set(QUERN_ENOKERNEL,
                            "no kernel %s for recipe %s and backend %s", does,
                            recipe, qn_backend_name(backend));

    if (other)
        qn_error_add("  %s: not linked into this program", other->name);
    return code;
}

int qn_step_load(struct qn_session *session, int op, int of, const char *does,
                 const char *recipe, int backend, struct qn_step *step)
{
    struct qn_driver *driver = session->driver;
    const struct qn_candidate *found = find(session, op, of, recipe, backend);
    const int compiles = !found && qn_step_compiles(session, backend);
    struct qn_module *module;
    int code;

    if (compiles) {
        backend = QUERN_BACKEND_JIT;
        found = find(session, op, of, recipe, backend);
    }
    if (!found)
        return none(session, op, of, does, recipe, backend);
    step->kernel = found->kernel;
    step->ctas = found->kernel->ctas
                     ? (unsigned)(session->demand.sms * found->kernel->ctas)
                     : 1;
    code = qn_session_loads(session, found, backend);
    if (code == QN_COLD || session->outline)
        return code;
    if (!code)
        code = qn_module_get(session->ctx, found, backend, &module);
    if (code && compiles)
        qn_error_add("  for %s, which is not linked into this program",
                     found->kernel->name);
    if (code)
        return code == QN_REJECTED ? QUERN_ECOMPILE : code;
    code = QN_CU(driver, cuKernelGetFunction, &step->handle, module->handle);
    if (!code && driver->cuFuncLoad)
        code = QN_CU(driver, cuFuncLoad, step->handle);
    return code;
}

int qn_step_launch(struct qn_driver *driver, const struct qn_step *step,
                   void *const values[QN_PARAM_COUNT], void *stream)
{
    const struct cu_launch config = {
        .grid = {step->ctas, 1, 1},
        .block = {(unsigned)step->kernel->threads, 1, 1},
        .stream = stream,
    };
    void *params[QN_PARAM_COUNT];

    for (int i = 0; i < step->kernel->nparams; i++)
        params[i] = values[step->kernel->params[i]];
    return qn_driver_launch(driver, &config, NULL, step->dependent,
                            step->handle, params);
}

void qn_step_explain(const char *kernel, int dependent, const char *indent,
                     struct qn_text *text)
{
    qn_text_add(text, "%s> %s%s\n", indent, kernel,
                dependent ? "   (dependent)" : "");
}
