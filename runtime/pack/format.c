/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: the table of formats, and the one that a checkpoint has. */
#include "pack/format.h"

#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* NULL after the last. */
static const struct qn_format *const formats[] = {
    &qn_format_gpt_oss,    &qn_format_gpt_oss_original,
    &qn_format_deepseek,   &qn_format_nvfp4,
    &qn_format_gptq,       &qn_format_awq,
    &qn_format_compressed, NULL,
};

/* Does the name end so? */
static int ends(const char *name, const char *end)
{
    const size_t length = strlen(name), more = strlen(end);

    return length > more && !strcmp(name + length - more, end);
}

static const struct qn_checkpoint_tensor *
first_of(const struct qn_checkpoint *c, const struct qn_format *format)
{
    for (int i = 0; i < c->count; i++)
        if ((format->piece ? qn_expert_has(c->tensors[i].t->name, format->codes)
                           : ends(c->tensors[i].t->name, format->codes)) &&
            format->is(c, &c->tensors[i]))
            return &c->tensors[i];
    return NULL;
}

static int unknown(const char *name)
{
    struct qn_guess guess = {.word = name};
    struct qn_text list = {0};
    char nearest[64];
    int code;

    for (int i = 0; formats[i]; i++) {
        qn_guess_try(&guess, formats[i]->name);
        qn_text_add(&list, ", %s", formats[i]->name);
    }
    code =
        qn_error_set(QUERN_EINVAL, "--format '%s' is unknown; known: auto%s%s",
                     name, list.data ? list.data : "",
                     qn_guess_text(&guess, nearest, sizeof nearest));
    qn_text_free(&list);
    return code;
}

static int none(const struct qn_checkpoint *c, const struct qn_format *format)
{
    return qn_error_set(
        QUERN_EINVAL,
        "%s%s: no experts of %s; experts are *.experts.N.gate_proj.weight and "
        "the like, or gpt-oss's gate_up_proj_blocks, in few bits",
        c->files[0].label, c->nfiles > 1 ? " and the other files" : "",
        format ? format->title : "a known format");
}

/* The only format of which there is a tensor. */
static int find_only(const struct qn_checkpoint *c,
                     const struct qn_format **found)
{
    const struct qn_checkpoint_tensor *first = NULL;

    for (int i = 0; formats[i]; i++) {
        const struct qn_checkpoint_tensor *one = first_of(c, formats[i]);

        if (one && first)
            return qn_checkpoint_wrong(
                c, one,
                "it has the format %s, and '%s' has %s; choose one with "
                "--format, or layers with --experts-of",
                formats[i]->name, first->t->name, (*found)->name);
        if (one) {
            first = one;
            *found = formats[i];
        }
    }
    return first ? QUERN_OK : none(c, NULL);
}

int qn_format_find(const struct qn_checkpoint *c, const char *name,
                   const struct qn_format **found)
{
    if (!name || !strcmp(name, "auto"))
        return find_only(c, found);
    for (int i = 0; formats[i]; i++)
        if (!strcmp(formats[i]->name, name)) {
            *found = formats[i];
            return first_of(c, *found) ? QUERN_OK : none(c, *found);
        }
    return unknown(name);
}

int qn_format_tensor(const struct qn_pack *pack, const char *name,
                     const char *part, int type, int ndim, const int64_t *shape,
                     struct qn_checkpoint_tensor **tensor)
{
    struct qn_safetensor wanted = {.type = type, .ndim = ndim < 0 ? 0 : ndim};
    char text[2][256];
    struct qn_text whole = {0};
    int same, code = QUERN_OK;

    qn_text_add(&whole, "%s.%s", name, part);
    if (whole.failed)
        return qn_error_memory();
    *tensor = qn_checkpoint_find(pack->checkpoint, whole.data);
    if (!*tensor)
        code = qn_error_set(
            QUERN_EINVAL, "tensor '%s' is missing: no file has it", whole.data);
    qn_text_free(&whole);
    if (code)
        return code;
    same =
        (*tensor)->t->type == type && (ndim < 0 || (*tensor)->t->ndim == ndim);
    for (int i = 0; shape && i < ndim; i++) {
        wanted.shape[i] = shape[i];
        same = same && (*tensor)->t->shape[i] == shape[i];
    }
    if (same)
        return QUERN_OK;
    if (shape)
        qn_safetensors_shape(&wanted, text[1], sizeof text[1]);
    else
        snprintf(text[1], sizeof text[1], "%s%s", qn_safetensors_type(type),
                 ndim == 2  ? " of two axes"
                 : ndim > 0 ? " of four axes"
                            : "");
    return qn_checkpoint_wrong(
        pack->checkpoint, *tensor, "it is %s; %s is expected",
        qn_safetensors_shape((*tensor)->t, text[0], sizeof text[0]), text[1]);
}

const struct qn_checkpoint_tensor *
qn_format_sibling(const struct qn_checkpoint *c,
                  const struct qn_checkpoint_tensor *tensor, const char *part,
                  const char *other)
{
    const size_t length = strlen(tensor->t->name);
    const struct qn_checkpoint_tensor *found;
    struct qn_text name = {0};

    qn_text_add(&name, "%.*s%s", (int)(length - strlen(part)), tensor->t->name,
                other);
    found = name.failed ? NULL : qn_checkpoint_find(c, name.data);
    qn_text_free(&name);
    return found;
}

int qn_format_fit(struct qn_pack *pack, const struct qn_format_piece *p,
                  int64_t groups)
{
    const int f16 = p->scales->t->type == QN_ST_F16;
    int code;

    if (!groups || p->k % groups || p->rows % 8)
        return qn_checkpoint_wrong(pack->checkpoint, p->scales,
                                   "%lld groups do not divide k = %lld, or 8 "
                                   "do not divide n = %lld",
                                   (long long)groups, (long long)p->k,
                                   (long long)p->rows);
    code = qn_weight_fits(pack, p->scales, 1U << QUERN_I4 | 1U << QUERN_U4,
                          f16 ? QUERN_F16 : QUERN_BF16, 1, p->k / groups);
    return code ? code : qn_pack_check_numbers(pack, p->scales);
}

int qn_format_scales(struct qn_pack *pack, const char *name, const char *part,
                     int axis, struct qn_format_piece *p, int64_t *groups)
{
    const struct qn_checkpoint_tensor *there = qn_format_sibling(
        pack->checkpoint, p->codes, pack->format->codes, part);
    const int type =
        there && there->t->type == QN_ST_BF16 ? QN_ST_BF16 : QN_ST_F16;
    int64_t shape[2] = {p->rows, p->rows};

    *groups = there && there->t->ndim > axis ? there->t->shape[axis] : 0;
    shape[axis] = *groups;
    return qn_format_tensor(pack, name, part, type, 2, shape, &p->scales);
}

int qn_format_integers(struct qn_pack *pack, const char *name,
                       struct qn_format_piece *p, int64_t *groups)
{
    const int code = qn_format_scales(pack, name, "scales", 0, p, groups);

    if (code)
        return code;
    p->scale = (struct qn_pack_layout){.rows = {1, 1, 0, NULL},
                                       .columns = {1, p->rows, 0, NULL}};
    return qn_format_fit(pack, p, *groups);
}

struct qn_pack_layout qn_format_rows(int64_t pitch)
{
    return (struct qn_pack_layout){.rows = {1, pitch, 0, NULL},
                                   .columns = {1, 1, 0, NULL}};
}
