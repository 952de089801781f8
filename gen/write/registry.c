/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c: the descriptions of recipes, kernels and points that
   make none for the runtime, in memory. */
#include "lua/base.h"
#include "write/write.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int recipe_by_name(const void *a, const void *b)
{
    const struct qn_recipe *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Rows of the tensor's blocks. */
static int block_rows(const struct qg_scale *scale, int of)
{
    return of == QN_W ? scale->block.per.n : scale->block.per.m;
}

/* The type of a stored scale, with its zero point if it has one. */
static int stored_type(const struct qg_scale *s)
{
    if (s->zero != QG_STORED)
        return s->type;
    return s->type == QUERN_F16 ? QUERN_F16_ZERO : QUERN_BF16_ZERO;
}

/* "e8m0 per 1x32": rows by values along k; those above a second level too. */
static const char *print_one(struct qg *q, const struct qg_scale *scale, int of)
{
    const char *type, *global = scale->global ? ", f32 per group" : "";

    if (!scale->blocked)
        return "none";
    type = qg_types_of(stored_type(scale))->name;
    if (scale->block.span != QN_SPAN_BLOCK)
        return qg_mem_print(q, "%s per %s%s", type,
                            qg_list_spans.words[scale->block.span],
                            scale->delayed.history ? ", delayed" : "");
    return qg_mem_print(q, "%s per %dx%d%s", type, block_rows(scale, of),
                        scale->block.per.k, global);
}

/* The scales of the activations, and of the other tensors where theirs
   differ. */
static const char *print_scale(struct qg *q, const struct qg_recipe *r)
{
    const char *x = print_one(q, &r->scale[QN_X], QN_X);
    const char *w = print_one(q, &r->scale[QN_W], QN_W);
    const char *dy = print_one(q, &r->scale[QN_DY], QN_DY);
    const char *text = strcmp(x, w) ? qg_mem_print(q, "%s; w %s", x, w) : x;

    return r->element.dy && strcmp(x, dy)
               ? qg_mem_print(q, "%s; dy %s", text, dy)
               : text;
}

/* The fields of a scale that the runtime uses. */
static struct qn_scaling scaling(const struct qg_scale *s, int of)
{
    struct qn_scaling out = {.type = QUERN_TYPE_NONE};

    if (!s->blocked)
        return out;
    out = (struct qn_scaling){
        .type = stored_type(s),
        .span = s->block.span,
        .rows = block_rows(s, of),
        .k = s->block.per.k,
        .order = qg_list_find(&qg_list_orders, s->stored->order),
        .pad_rows = s->stored->pad.rows,
        .pad_columns = s->stored->pad.columns,
        .apart = !strcmp(s->stored->groups, "apart"),
        .global = s->global != 0,
        .stochastic = !strcmp(s->rounding, "stochastic"),
        .hadamard = s->hadamard != NULL,
        .history = s->delayed.history,
        .zero = s->zero == QG_STORED ? 0 : s->zero,
        .packed = qg_recipe_packed(s),
        .as = s->as};
    return out;
}

/* The scale of x, or of the first tensor that has one: the others' are like
   it. */
static const char *first_rule(struct qg *q, const struct qg_recipe *recipe)
{
    int of = 0;

    while (of < QN_TENSORS - 1 && !recipe->scale[of].blocked)
        of++;
    return qg_rule_source(q, &recipe->scale[of]);
}

/* All strings live in the arena. */
static struct qn_recipe describe(struct qg *q, const struct qg_recipe *recipe)
{
    struct qn_recipe row = {.name = recipe->name,
                            .doc = recipe->doc,
                            .spec = qg_files_print(q, recipe->location),
                            .x = recipe->element.x,
                            .w = recipe->element.w,
                            .dy = recipe->element.dy,
                            .default_d = recipe->d.at[0],
                            .scale = print_scale(q, recipe),
                            .rule = first_rule(q, recipe),
                            .promote = recipe->promote};

    for (int of = 0; of < QN_TENSORS; of++) {
        row.scaling[of] = scaling(&recipe->scale[of], of);
        row.scaled |= recipe->scale[of].blocked;
    }
    for (int i = 0; i < recipe->d.count; i++)
        row.d_types |= 1u << recipe->d.at[i];
    return row;
}

static void add_recipes(struct qg *q)
{
    struct qn_recipe *rows;
    int count = 0;

    for (const struct qg_recipe *r = q->recipes; r; r = r->next)
        count++;
    rows = qg_mem_array(q, (size_t)count, sizeof *rows);
    count = 0;
    for (const struct qg_recipe *r = q->recipes; r; r = r->next)
        rows[count++] = describe(q, r);
    qsort(rows, (size_t)count, sizeof *rows, recipe_by_name);
    q->registry.recipes = rows;
    q->registry.nrecipes = count;
}

/* Kernels first among the sorted points, as in the registry. */
static void split_points(struct qg *q)
{
    struct qg_point **sorted =
        qg_mem_array(q, (size_t)q->npoints, sizeof *sorted);
    int count = 0;

    for (int i = 0; i < q->npoints; i++)
        if (!q->sorted[i]->reason)
            sorted[count++] = q->sorted[i];
    q->registry.nkernels = count;
    for (int i = 0; i < q->npoints; i++)
        if (q->sorted[i]->reason)
            sorted[count++] = q->sorted[i];
    q->registry.nrejected = count - q->registry.nkernels;
    q->sorted = sorted;
}

/* Without keys: rendering all kernels takes a second, one of them is asked for
   as a rule. */
static void add_kernels(struct qg *q)
{
    struct qn_kernel *rows =
        qg_mem_array(q, (size_t)q->registry.nkernels, sizeof *rows);

    for (int i = 0; i < q->registry.nkernels; i++) {
        rows[i] = q->sorted[i]->kernel;
        q->sorted[i]->row = &rows[i];
    }
    q->registry.kernels = rows;
}

/* They come last among the sorted points. */
static void add_rejected(struct qg *q)
{
    struct qn_rejected *rows =
        qg_mem_array(q, (size_t)q->registry.nrejected, sizeof *rows);

    for (int i = 0; i < q->registry.nrejected; i++) {
        const struct qg_point *point = q->sorted[q->registry.nkernels + i];
        const struct qn_kernel *kernel = &point->kernel;

        rows[i] = (struct qn_rejected){.name = kernel->name,
                                       .spec = kernel->spec,
                                       .recipe = kernel->recipe,
                                       .op = kernel->op,
                                       .of = kernel->of,
                                       .input = kernel->input,
                                       .form = kernel->form,
                                       .ragged = kernel->ragged,
                                       .epilogue = kernel->epilogue,
                                       .a_major = kernel->a.major,
                                       .b_major = kernel->b.major,
                                       .d_type = kernel->d.type,
                                       .activation = kernel->activation,
                                       .interleave = kernel->interleave,
                                       .quantize = kernel->quantize,
                                       .reason = point->reason};
    }
    q->registry.rejected = rows;
}

/* By name, then by text: two folders may have files of one name. */
static int by_content(const void *a, const void *b)
{
    const struct qg_input *x = *(struct qg_input *const *)a;
    const struct qg_input *y = *(struct qg_input *const *)b;
    size_t shorter = x->length < y->length ? x->length : y->length;
    int order = strcmp(x->name, y->name);

    if (!order)
        order = memcmp(x->text, y->text, shorter);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* Over every spec and template: all that the registry and its sources are made
   of. The order of folders, and where they are, do not count. */
static const char *hash_inputs(struct qg *q)
{
    const struct qg_input **inputs =
        qg_mem_array(q, (size_t)q->nfiles, sizeof *inputs);
    char hash[SHA256_DIGEST_STRING_LENGTH], line[64];
    SHA2_CTX sum;
    int count = 0;

    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind != QG_FOLDER)
            inputs[count++] = &q->files[i];
    if (count)
        qsort(inputs, (size_t)count, sizeof *inputs, by_content);
    SHA256Init(&sum);
    for (int i = 0; i < count; i++) {
        snprintf(line, sizeof line, "%zu ", inputs[i]->length);
        SHA256Update(&sum, (const uint8_t *)line, strlen(line));
        SHA256Update(&sum, (const uint8_t *)inputs[i]->name,
                     strlen(inputs[i]->name) + 1);
        SHA256Update(&sum, (const uint8_t *)inputs[i]->text, inputs[i]->length);
    }
    SHA256End(&sum, hash);
    return qg_mem_string(q, hash, strlen(hash));
}

void qg_registry_build(struct qg *q)
{
    add_recipes(q);
    split_points(q);
    add_kernels(q);
    add_rejected(q);
    qg_source_try(q);
    q->registry.hash = hash_inputs(q);
    q->registry.layout = QN_REGISTRY_LAYOUT;
}

const struct quern_registry *qg_registry(const struct qg *q)
{
    return &q->registry;
}

struct request {
    const struct qg_selection *selection;
    const struct qg_link *link;
};

static void write_text(struct qg *q, void *argument)
{
    struct request *request = argument;

    if (!qg_source_each(q, request->selection, qg_source_key))
        qg_registry_write(q, request->selection, request->link);
}

int qg_registry_text(struct qg *q, const struct qg_selection *selection,
                     const struct qg_link *link, const char **text,
                     size_t *length)
{
    struct request request = {selection, link};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, write_text, &request))
        return 1;
    *text = q->output.data;
    *length = q->output.length;
    return 0;
}
