/* SPDX-License-Identifier: Apache-2.0 */
/* operands.c: an instruction's operands: a flat list, in which vectors and
   addresses are their parts. */
#include "build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int px_bad(const struct px_build *b, const char *why)
{
    return px_fault_plain("%.200s.cu:%d: %s: %s", b->program->name, b->line,
                          b->mnemonic, why);
}

int32_t px_build_place(struct px_build *b, int bytes)
{
    struct px_program *program = b->program;
    size_t align = bytes % 64 ? 4 : 64;
    size_t at = (program->file_bytes + align - 1) / align * align;

    program->file_bytes = at + (size_t)bytes;
    return (int32_t)at;
}

static int32_t add_constant(struct px_build *b, struct px_constant x)
{
    struct px_program *program = b->program;
    static const int bytes[] = {128, 256, 4};

    if (x.wide != 1)
        x.value &= PX_ALL;
    for (int i = program->nconstants - 1; i >= 0; i--)
        if (program->constants[i].value == x.value &&
            program->constants[i].wide == x.wide &&
            program->constants[i].shared == x.shared)
            return program->constants[i].at;
    if (px_grow(&program->constants, program->nconstants, &b->room_constants,
                sizeof *program->constants))
        return program->sink;
    x.at = px_build_place(b, bytes[x.wide]);
    program->constants[program->nconstants++] = x;
    return x.at;
}

int32_t px_build_constant(struct px_build *b, uint64_t value, int wide)
{
    return add_constant(b, (struct px_constant){.value = value, .wide = wide});
}

int32_t px_build_shared(struct px_build *b, uint64_t value, int wide)
{
    return add_constant(
        b, (struct px_constant){.value = value, .wide = wide, .shared = 1});
}

static const struct {
    const char *name;
    int which;
} specials[] = {
    {"%tid.x", PX_TID_X},
    {"%tid.y", PX_TID_Y},
    {"%tid.z", PX_TID_Z},
    {"%ntid.x", PX_NTID_X},
    {"%ntid.y", PX_NTID_Y},
    {"%ntid.z", PX_NTID_Z},
    {"%ctaid.x", PX_CTAID_X},
    {"%ctaid.y", PX_CTAID_Y},
    {"%ctaid.z", PX_CTAID_Z},
    {"%nctaid.x", PX_NCTAID_X},
    {"%nctaid.y", PX_NCTAID_Y},
    {"%nctaid.z", PX_NCTAID_Z},
    {"%laneid", PX_LANEID},
    {"%warpid", PX_WARPID},
    {"%cluster_ctarank", PX_CLUSTER_RANK},
    {"%cluster_nctarank", PX_CLUSTER_SIZE},
    {"%smid", PX_SMID},
    {"%nsmid", PX_NSMID},
    {"%cluster_ctaid.x", PX_CLUSTER_CTAID_X},
    {"%cluster_ctaid.y", PX_CLUSTER_CTAID_Y},
    {"%cluster_ctaid.z", PX_CLUSTER_CTAID_Z},
    {"%cluster_nctaid.x", PX_CLUSTER_NCTAID_X},
    {"%cluster_nctaid.y", PX_CLUSTER_NCTAID_Y},
    {"%cluster_nctaid.z", PX_CLUSTER_NCTAID_Z},
    {"%clusterid.x", PX_CLUSTERID_X},
    {"%clusterid.y", PX_CLUSTERID_Y},
    {"%clusterid.z", PX_CLUSTERID_Z},
    {"%nclusterid.x", PX_NCLUSTERID_X},
    {"%nclusterid.y", PX_NCLUSTERID_Y},
    {"%nclusterid.z", PX_NCLUSTERID_Z},
};

static int32_t find_special(struct px_build *b, const char *name)
{
    struct px_program *program = b->program;

    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        if (strcmp(specials[i].name, name))
            continue;
        for (int j = 0; j < program->nspecial; j++)
            if (program->special[j].which == specials[i].which)
                return program->special[j].at;
        program->special[program->nspecial] =
            (struct px_special){specials[i].which, px_build_place(b, 128)};
        return program->special[program->nspecial++].at;
    }
    return -1;
}

/* A number: 12, -3, 0xff, 0f3F800000, 0d.... */
int px_number(const char *word, uint64_t *value)
{
    const char *digits = word + (*word == '-');
    char *end;

    if (!isdigit((unsigned char)*digits))
        return 0;
    if (digits[0] == '0' && (digits[1] == 'f' || digits[1] == 'd') &&
        strlen(digits) > 9 - (digits[1] == 'd')) {
        *value = strtoull(digits + 2, &end, 16);
        return !*end;
    }
    *value = strtoull(digits, &end, 0);
    if (*end == 'U')
        end++;
    if (*end == '.') { /* a fraction of a cache policy, not used */
        strtod(digits, &end);
        *value = 0;
    }
    if (*word == '-')
        *value = -*value;
    return !*end;
}

/* The register, predicate or symbol of that name, in the innermost scope. */
static int find_name(const struct px_build *b, const char *word,
                     struct px_operand *out)
{
    size_t letters = strcspn(word, "0123456789");

    for (int i = b->nnames - 1; i >= 0; i--) {
        const struct px_name *name = &b->names[i];
        int number = 0;

        if (name->count) {
            if (strncmp(name->name, word, letters) || name->name[letters] ||
                !word[letters])
                continue;
            number = atoi(word + letters);
            if (number >= name->count)
                continue;
        } else if (strcmp(name->name, word)) {
            continue;
        }
        out->kind = name->kind == 's' ? 'i' : name->kind;
        out->wide = name->wide;
        out->shared = name->shared;
        out->value = name->value;
        out->at = name->at + number * (name->kind == 'p' ? 4
                                       : name->wide      ? 256
                                                         : 128);
        return 1;
    }
    return 0;
}

/* One word as an operand. */
static int add_operand(struct px_build *b, char *word)
{
    struct px_operand *out = &b->operand[b->noperands];

    if (b->noperands == PX_MAX_OPERANDS)
        return px_bad(b, "too many operands");
    b->shape[b->noperands] = 0;
    memset(out, 0, sizeof *out);
    out->name = word;
    out->not = *word == '!';
    word += *word == '!';
    b->noperands++;
    if (px_number(word, &out->value)) {
        out->kind = 'i';
        return PX_NEXT;
    }
    if (find_name(b, word, out))
        return PX_NEXT;
    if (!strcmp(word, "_")) {
        out->kind = '_';
        out->at = b->program->sink;
        return PX_NEXT;
    }
    if (*word == '%') {
        out->kind = 'r';
        out->at = find_special(b, word);
        if (out->at < 0)
            return px_fault_plain("%.200s.cu:%d: register %s is not known",
                                  b->program->name, b->line, word);
        return PX_NEXT;
    }
    out->kind = 'l';
    return PX_NEXT;
}

/* After [word: +12, +-4, also after a space. */
static char *read_offset(struct px_build *b, char *at)
{
    char *end, *plus = at + strspn(at, " \t\n");
    int64_t offset;

    if (*plus != '+')
        return at;
    offset = strtoll(plus + 1, &end, 0);
    if (b->naddresses > 1 && offset)
        px_bad(b, "a second address with an offset is not known");
    if (b->naddresses == 1)
        b->op->offset = offset;
    *at = 0;
    return end;
}

int px_operands_read(struct px_build *b, char *at)
{
    int mark = 0;

    b->noperands = b->naddresses = 0;
    while (*at) {
        char *begin, *after, kept;

        if (strchr(" \t\n,{}[]|", *at)) {
            if (*at == '[')
                b->naddresses++;
            if (strchr("{}[]|", *at))
                mark = *at;
            at++;
            continue;
        }
        if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
            continue;
        }
        begin = at;
        at += strcspn(at, " \t\n,{}[]|+");
        after = read_offset(b, at);
        kept = *after;
        if (after == at)
            *at = 0;
        if (add_operand(b, begin))
            return PX_FAULT;
        if (mark == '{')
            b->shape[b->noperands - 1] = '{';
        if (mark == '|')
            b->shape[b->noperands - 1] = '|';
        mark = 0;
        if (!kept)
            break;
        if (kept == '[')
            b->naddresses++;
        if (strchr("{}[]|", kept))
            mark = kept;
        at = after + 1;
    }
    return PX_NEXT;
}
