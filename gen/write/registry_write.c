/* SPDX-License-Identifier: Apache-2.0 */
/* registry_write.c: the registry as C text. The selected kernels have their
   keys. */
#include "lua/base.h"
#include "write/write.h"

#include <string.h>

struct writer {
    struct qg *q;
    struct qg_text *out;
    const struct qg_selection *selection;
    const struct qg_link *link;
    int kernels;
};

static void put(struct writer *w, const char *text)
{
    qg_text_put(w->q, w->out, text);
}

static void put_string(struct writer *w, const char *field, const char *text)
{
    qg_text_print(w->q, w->out, "     .%s = ", field);
    qg_text_quote(w->q, w->out, text);
    put(w, ",\n");
}

static void put_int(struct writer *w, const char *field, int value)
{
    qg_text_print(w->q, w->out, "     .%s = %d,\n", field, value);
}

/* The name of the enum, so that the text can be read. */
static const char *type_name(int type)
{
    return qg_list_types.names[type];
}

static void put_name(struct writer *w, const char *field,
                     const struct qg_list *list, int value)
{
    qg_text_print(w->q, w->out, "     .%s = %s,\n", field, list->names[value]);
}

/* ----------------------------------------------------------------- recipes */

/* In the order of its fields. COUPLED: scaling */
static void put_scaling(struct writer *w, const struct qn_scaling *s)
{
    const int values[] = {s->span,       s->rows,        s->k,       s->order,
                          s->pad_rows,   s->pad_columns, s->apart,   s->global,
                          s->stochastic, s->hadamard,    s->history, s->zero,
                          s->packed,     s->as};

    qg_text_print(w->q, w->out, "         {%s", type_name(s->type));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        qg_text_print(w->q, w->out, ", %d", values[i]);
    put(w, "},\n");
}

static void put_recipe(struct writer *w, const struct qn_recipe *r)
{
    const char *separator = "";

    put(w, "    {\n");
    put_string(w, "name", r->name);
    put_string(w, "doc", r->doc);
    put_string(w, "spec", qg_files_portable(w->q, r->spec));
    put_name(w, "x", &qg_list_types, r->x);
    put_name(w, "w", &qg_list_types, r->w);
    put_name(w, "dy", &qg_list_types, r->dy);
    put(w, "     .d_types = ");
    for (int type = 0; type < QUERN_TYPE_COUNT; type++)
        if (r->d_types >> type & 1) {
            qg_text_print(w->q, w->out, "%s1u << %s", separator,
                          type_name(type));
            separator = " | ";
        }
    put(w, ",\n");
    put_name(w, "default_d", &qg_list_types, r->default_d);
    put_int(w, "scaled", r->scaled);
    put_string(w, "scale", r->scale);
    put_string(w, "rule", r->rule);
    put_int(w, "promote", r->promote);
    put(w, "     .scaling = {\n");
    for (int of = 0; of < QN_TENSORS; of++)
        put_scaling(w, &r->scaling[of]);
    put(w, "     },\n    },\n");
}

/* ----------------------------------------------------------------- kernels */

static int selected(const struct writer *w, const struct qn_kernel *kernel)
{
    return qg_selects(w->selection, kernel);
}

/* 0: not linked. */
static size_t cubin_bytes(const struct writer *w,
                          const struct qn_kernel *kernel)
{
    if (!w->link->cubin_bytes)
        return 0;
    return w->link->cubin_bytes(w->link->user, kernel);
}

/* A host kernel is a function of its own name. */
static int has_host(const struct writer *w, const struct qn_kernel *kernel)
{
    return w->link->host && !strcmp(kernel->arch, "host");
}

static void put_operand(struct writer *w, const char *name,
                        const struct qn_operand *operand)
{
    qg_text_print(
        w->q, w->out, "     .%s = {%s, %s, %s, {%d, %d}, %d, {%d, %d}},\n",
        name, type_name(operand->type), qg_list_majors.names[operand->major],
        qg_list_axes.names[operand->ragged], operand->box[0], operand->box[1],
        operand->swizzle, operand->sf_box[0], operand->sf_box[1]);
}

/* Fields of a cast, kernel or rejected point. */
static void put_cast(struct writer *w, int op, int of, int input, int form)
{
    put_name(w, "op", &qg_list_ops, op);
    put_name(w, "of", &qg_list_ofs, of);
    put_name(w, "form", &qg_list_forms, form);
    put_name(w, "input", &qg_list_types, input);
}

/* Fields of a product, kernel or rejected point. */
static void put_variant(struct writer *w, int op, int ragged, int epilogue)
{
    put_name(w, "op", &qg_list_ops, op);
    put_name(w, "ragged", &qg_list_axes, ragged);
    put_name(w, "epilogue", &qg_list_epilogues, epilogue);
}

/* Further fields of products; most have none. */
static void put_activation(struct writer *w, const char *activation,
                           int interleave)
{
    if (!activation[0])
        return;
    put_string(w, "activation", activation);
    put_int(w, "interleave", interleave);
}

/* Fields of a kernel that quantizes its operand; most do not. */
static void put_quantize(struct writer *w, const char *quantize)
{
    if (quantize[0])
        put_string(w, "quantize", quantize);
}

/* The parameters that some kernels of a statement share. */
static void put_params(struct writer *w, const struct qg_kernels *k,
                       struct qg_params *p, int number)
{
    struct qg_text *out = w->out;

    p->number = number;
    qg_text_print(w->q, out, "static const unsigned char params_%d[] = {\n",
                  number);
    for (int i = 0; i < k->params.count; i++)
        if (!(p->left_out >> i & 1))
            qg_text_print(w->q, out, "    QN_PARAM_%s,\n", k->params.at[i]);
    put(w, "};\n\n");
}

/* The rules that all of them share. */
static void put_rules(struct writer *w, struct qg_kernels *k, int number)
{
    struct qg_text *out = w->out;

    k->number = number;
    if (!k->nrules)
        return;
    qg_text_print(w->q, out,
                  "static const struct qn_requires requires_%d[] = "
                  "{\n",
                  number);
    for (int i = 0; i < k->nrules; i++) {
        put(w, "    {");
        qg_text_quote(w->q, out, k->rules[i].text);
        put(w, ",\n     ");
        qg_text_quote(w->q, out, k->rules[i].reason);
        put(w, "},\n");
    }
    put(w, "};\n\n");
}

/* Once for each statement that has a selected kernel. */
static void put_all_lists(struct writer *w)
{
    const struct quern_registry *registry = &w->q->registry;
    int params = 0, rules = 0;

    for (struct qg_kernels *k = w->q->kernels; k; k = k->next) {
        k->number = 0;
        for (struct qg_params *p = k->param_lists; p; p = p->next)
            p->number = 0;
    }
    for (int i = 0; i < registry->nkernels; i++) {
        struct qg_point *point = w->q->sorted[i];

        if (!selected(w, &registry->kernels[i]))
            continue;
        if (!point->params->number)
            put_params(w, point->kernels, point->params, ++params);
        if (!point->kernels->number)
            put_rules(w, point->kernels, ++rules);
    }
}

static void put_lists_of(struct writer *w, const struct qg_point *point)
{
    const struct qg_kernels *k = point->kernels;

    qg_text_print(w->q, w->out,
                  "     .params = params_%d,\n     .nparams = %d,\n",
                  point->params->number, point->params->count);
    if (k->nrules)
        qg_text_print(w->q, w->out,
                      "     .rules = requires_%d,\n     .nrules = %d,\n",
                      k->number, k->nrules);
}

static void put_sizes(struct writer *w, const struct qn_kernel *kernel)
{
    qg_text_print(w->q, w->out,
                  "     .tile = {%d, %d, %d},\n     .cluster = {%d, %d},\n",
                  kernel->tile[0], kernel->tile[1], kernel->tile[2],
                  kernel->cluster[0], kernel->cluster[1]);
    put_int(w, "stages", kernel->stages);
    put_string(w, "schedule", kernel->schedule);
    put_string(w, "addend", kernel->addend);
    put_string(w, "dequantize", kernel->dequantize);
    put_string(w, "becomes", kernel->becomes);
    put_quantize(w, kernel->quantize);
    put_int(w, "threads", kernel->threads);
    put_int(w, "microbatches", kernel->microbatches);
    put_int(w, "ctas", kernel->ctas);
    put_int(w, "smem", kernel->smem);
    put_int(w, "shipped", kernel->shipped);
    if (kernel->ran)
        put_int(w, "ran", kernel->ran);
    if (kernel->interpreted)
        put_int(w, "interpreted", 1);
}

static void put_links(struct writer *w, const struct qn_kernel *kernel)
{
    size_t bytes = cubin_bytes(w, kernel);

    if (bytes)
        qg_text_print(w->q, w->out,
                      "     .cubin = %s_cubin,\n     .cubin_bytes = %zu,\n",
                      kernel->name, bytes);
    if (has_host(w, kernel))
        qg_text_print(w->q, w->out, "     .host = %s,\n", kernel->name);
}

static void put_kernel(struct writer *w, const struct qn_kernel *kernel,
                       const struct qg_point *point)
{
    put(w, "    {\n");
    put_string(w, "name", kernel->name);
    put_string(w, "spec", qg_files_portable(w->q, kernel->spec));
    put_string(w, "template_path", kernel->template_path);
    put_string(w, "key", kernel->key);
    put_string(w, "recipe", kernel->recipe);
    put_string(w, "arch", kernel->arch);
    if (kernel->op > QUERN_WGRAD) {
        put_cast(w, kernel->op, kernel->of, kernel->input, kernel->form);
    } else {
        put_variant(w, kernel->op, kernel->ragged, kernel->epilogue);
        put_operand(w, "a", &kernel->a);
        put_operand(w, "b", &kernel->b);
        put_operand(w, "d", &kernel->d);
        put_activation(w, kernel->activation, kernel->interleave);
    }
    put_sizes(w, kernel);
    put_lists_of(w, point);
    put_links(w, kernel);
    put(w, "    },\n");
}

/* Symbols that other files of the link define. */
static void put_declarations(struct writer *w)
{
    const struct quern_registry *registry = &w->q->registry;
    size_t start = w->out->length;

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        size_t bytes;

        if (!selected(w, kernel))
            continue;
        bytes = cubin_bytes(w, kernel);
        if (bytes)
            qg_text_print(w->q, w->out,
                          "extern const unsigned char\n    %s_cubin[%zu];\n",
                          kernel->name, bytes);
        if (has_host(w, kernel))
            qg_text_print(w->q, w->out,
                          "void %s(\n    void *const *params, int worker, "
                          "int workers);\n",
                          kernel->name);
    }
    if (w->out->length > start)
        put(w, "\n");
}

static void put_kernels(struct writer *w)
{
    const struct quern_registry *registry = &w->q->registry;

    for (int i = 0; i < registry->nkernels; i++) {
        if (!selected(w, &registry->kernels[i]))
            continue;
        if (!w->kernels++)
            put(w, "static const struct qn_kernel kernels[] = {\n");
        put_kernel(w, &registry->kernels[i], w->q->sorted[i]);
    }
    if (w->kernels)
        put(w, "};\n\n");
}

/* --------------------------------------------------------- rejected points */

/* A part of the kernels goes without the points that are none. */
static int takes_rejected(const struct writer *w)
{
    const struct qg_selection *s = w->selection;

    return !s || (!s->arch && !s->shipped && !s->takes &&
                  (!s->filter || !s->filter[0]));
}

static void put_rejected(struct writer *w)
{
    const struct quern_registry *registry = &w->q->registry;

    put(w, "static const struct qn_rejected rejected[] = {\n");
    for (int i = 0; i < registry->nrejected; i++) {
        const struct qn_rejected *r = &registry->rejected[i];

        put(w, "    {\n");
        put_string(w, "name", r->name);
        put_string(w, "spec", qg_files_portable(w->q, r->spec));
        put_string(w, "recipe", r->recipe);
        if (r->op > QUERN_WGRAD) {
            put_cast(w, r->op, r->of, r->input, r->form);
        } else {
            put_variant(w, r->op, r->ragged, r->epilogue);
            put_name(w, "a_major", &qg_list_majors, r->a_major);
            put_name(w, "b_major", &qg_list_majors, r->b_major);
            put_name(w, "d_type", &qg_list_types, r->d_type);
            put_activation(w, r->activation, r->interleave);
            put_quantize(w, r->quantize);
        }
        put_string(w, "reason", r->reason);
        put(w, "    },\n");
    }
    put(w, "};\n\n");
}

/* -------------------------------------------------------------- everything */

static void put_table(struct writer *w, const char *name, int count)
{
    if (count)
        qg_text_print(w->q, w->out, "    .%s = %s,\n    .n%s = %d,\n", name,
                      name, name, count);
}

static void put_parts(struct writer *w)
{
    const struct quern_registry *registry = &w->q->registry;
    int rejected = takes_rejected(w) ? registry->nrejected : 0;

    put_declarations(w);
    if (registry->nrecipes) {
        put(w, "static const struct qn_recipe recipes[] = {\n");
        for (int i = 0; i < registry->nrecipes; i++)
            put_recipe(w, &registry->recipes[i]);
        put(w, "};\n\n");
    }
    put_all_lists(w);
    put_kernels(w);
    if (rejected)
        put_rejected(w);
    qg_text_print(w->q, w->out,
                  "const struct quern_registry %s = {\n"
                  "    .layout = QN_REGISTRY_LAYOUT,\n    .hash = \"%s\",\n",
                  w->link->symbol, registry->hash);
    put_table(w, "recipes", registry->nrecipes);
    put_table(w, "kernels", w->kernels);
    put_table(w, "rejected", rejected);
    put(w, "};\n");
}

void qg_registry_write(struct qg *q, const struct qg_selection *selection,
                       const struct qg_link *link)
{
    struct writer w = {q, &q->output, selection, link, 0};

    qg_text_clear(&q->output);
    put(&w, "/*\n** The registry: the descriptions of all kernels.\n"
            "** Made by quern; the same specs give the same bytes.\n*/\n"
            "#include \"registry.h\"\n\n");
    put_parts(&w);
}
