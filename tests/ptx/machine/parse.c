/* SPDX-License-Identifier: Apache-2.0 */
/*
** parse.c: the text of one kernel, as NVRTC writes it, to decoded instructions.
**
** A statement ends with a semicolon. Braces that are no vector's open a scope,
** as asm statements have it, with registers and labels of its own.
*/
#include "build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int px_grow(void *array, int count, int *room, size_t size)
{
    void **at = array, *larger;

    if (count < *room)
        return PX_NEXT;
    *room = *room ? 2 * *room : 256;
    larger = realloc(*at, (size_t)*room * size);
    if (!larger)
        return px_fault_plain("out of memory");
    *at = larger;
    return PX_NEXT;
}

static int is_word(int c)
{
    return isalnum(c) || c == '_' || c == '$' || c == '%';
}

/* Comments and white space; a comment ends at its line's end. */
static char *skip(char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (at[0] != '/' || at[1] != '/')
            return at;
        at += strcspn(at, "\n");
    }
}

static char *end_of_line(char *at)
{
    return at + strcspn(at, "\n");
}

/* ------------------------------------------------------------------- names */

static int add_label(struct px_build *b, const char *name)
{
    if (px_grow(&b->labels, b->nlabels, &b->room_labels, sizeof *b->labels))
        return PX_FAULT;
    b->labels[b->nlabels++] =
        (struct px_label){name, b->scope, b->program->nops};
    return PX_NEXT;
}

static int open_scope(struct px_build *b)
{
    if (px_grow(&b->parents, b->nscopes, &b->room_scopes, sizeof *b->parents))
        return PX_FAULT;
    b->parents[b->nscopes] = b->scope;
    b->scope = b->nscopes++;
    return PX_NEXT;
}

/* Names of a scope that ends are forgotten, its labels are not. */
static void close_scope(struct px_build *b)
{
    while (b->nnames && b->names[b->nnames - 1].scope == b->scope)
        b->nnames--;
    b->scope = b->parents[b->scope];
}

/* .visible .entry name(params) directives { */
static int read_entry(struct px_build *b)
{
    char *name = skip(b->at), *open = strchr(name, '('), *close, *save, *param;

    close = open ? strchr(open, ')') : NULL;
    if (!close || b->program->name)
        return px_fault_plain("the text must have one kernel");
    *open = *close = 0;
    name[strcspn(name, " \t\n")] = 0;
    b->program->name = name;
    for (param = strtok_r(open + 1, ",", &save); param;
         param = strtok_r(NULL, ",", &save))
        if (px_declare_param(b, param))
            return PX_FAULT;
    b->at = close + 1;
    open = strchr(b->at, '{');
    if (!open)
        return px_fault_plain("the kernel has no body");
    *open = 0;
    param = strstr(b->at, ".maxntid");
    if (param)
        b->program->max_threads = atoi(param + 8);
    param = strstr(b->at, ".minnctapersm");
    b->program->min_ctas = param ? atoi(param + 13) : 1;
    b->at = open + 1;
    return PX_NEXT;
}

/* --------------------------------------------------------------- statements */

/* .loc 1 988 0, function_name L, inlined_at 1 1009 5 */
static void read_location(struct px_build *b)
{
    char *end = end_of_line(b->at), *in;
    char kept = *end;
    int line = 0;

    *end = 0;
    if (sscanf(b->at, "%*d %d", &line) == 1 && line) {
        b->line = line;
        b->outer = 0;
        in = strstr(b->at, "inlined_at");
        if (in)
            sscanf(in, "inlined_at %*d %d", &b->outer);
    }
    *end = kept;
    b->at = end;
}

/* A directive, whose name ends at `end`; b->at is after the name. */
static int read_directive(struct px_build *b, char *name)
{
    char *stop;

    if (!strcmp(name, ".loc")) {
        read_location(b);
        return PX_NEXT;
    }
    if (!strcmp(name, ".visible") || !strcmp(name, ".weak"))
        return PX_NEXT;
    if (!strcmp(name, ".entry")) {
        px_declare_ahead(b, b->at);
        return read_entry(b);
    }
    if (!strcmp(name, ".section")) {
        stop = strchr(b->at, '}');
        b->at = stop ? stop + 1 : b->at + strlen(b->at);
        return PX_NEXT;
    }
    stop = strchr(b->at, ';');
    if (!strcmp(name, ".reg") || !strcmp(name, ".shared") ||
        !strcmp(name, ".extern") || !strcmp(name, ".global") ||
        !strcmp(name, ".const")) {
        char *begin = b->at;

        if (!stop)
            return px_fault_plain("%s has no end", name);
        *stop = 0;
        b->at = stop + 1;
        if (!strcmp(name, ".global") || !strcmp(name, ".const"))
            return px_declare_variable(b, begin);
        return !strcmp(name, ".reg")
                   ? px_declare_registers(b, begin)
                   : px_declare_shared(b, begin, !strcmp(name, ".extern"));
    }
    if (!strcmp(name, ".version") || !strcmp(name, ".target") ||
        !strcmp(name, ".address_size") || !strcmp(name, ".file")) {
        b->at = end_of_line(b->at);
        return PX_NEXT;
    }
    if (!strcmp(name, ".pragma")) {
        b->at = stop ? stop + 1 : b->at;
        return PX_NEXT;
    }
    return px_fault_plain("directive %s is not known", name);
}

static int find_guard(struct px_build *b, char *name)
{
    struct px_operand *guard = &b->operand[0];

    b->op->guard_not = *name == '!' ? PX_ALL : 0;
    if (px_operands_read(b, name + (*name == '!')))
        return PX_FAULT;
    if (b->noperands != 1 || guard->kind != 'p')
        return px_bad(b, "its guard is no predicate");
    b->op->guard = guard->at;
    return PX_NEXT;
}

/* Does the instruction concern other threads? */
static int is_traced(const char *name)
{
    static const char *const begins[] = {
        "mbarrier.",   "cp.",  "wgmma.", "bar",   "fence",
        "setmaxnreg.", "mma.", "red.",   "atom.", "tcgen05."};

    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (!strncmp(name, begins[i], strlen(begins[i])))
            return 1;
    return 0;
}

/* [@p] name operands, which end with a zero. */
static int read_instruction(struct px_build *b, char *text)
{
    struct px_program *program = b->program;
    char *name = text, *rest;

    if (px_grow(&program->ops, program->nops, &b->room_ops,
                sizeof *program->ops))
        return PX_FAULT;
    b->op = &program->ops[program->nops];
    *b->op = (struct px_op){
        .guard = -1, .line = b->line, .outer = b->outer, .target = -1};
    b->mnemonic = b->op->text = text;
    if (*text == '@') {
        rest = text + 1 + strcspn(text + 1, " \t\n");
        *rest = 0;
        name = skip(rest + 1);
        if (find_guard(b, text + 1))
            return PX_FAULT;
    }
    rest = name + strcspn(name, " \t\n{[");
    if (*rest && strchr("{[", *rest)) { /* the name moves to make a space */
        memmove(name - 1, name, (size_t)(rest - name));
        name--;
        rest[-1] = 0;
    } else if (*rest) {
        *rest++ = 0;
    }
    b->mnemonic = b->op->text = name;
    b->op->is_traced = (char)is_traced(name);
    b->op->arg = (const int32_t *)(uintptr_t)program->nargs; /* an index yet */
    if (px_operands_read(b, rest) || px_opcode(b))
        return PX_FAULT;
    if (!strncmp(name, "setmaxnreg.", 11) &&
        b->operand[0].value > program->most_registers)
        program->most_registers = (uint32_t)b->operand[0].value;
    program->nops++;
    return PX_NEXT;
}

/* The first word of a statement decides. */
static int read_statement(struct px_build *b)
{
    char *begin = b->at, *end;

    if (*begin == '{' || *begin == '}') {
        b->at++;
        if (*begin == '{')
            return open_scope(b);
        close_scope(b);
        return PX_NEXT;
    }
    if (*begin == '.') {
        for (end = begin + 1; is_word(*end); end++)
            ;
        if (*end) {
            *end = 0;
            b->at = end + 1;
        }
        return read_directive(b, begin);
    }
    for (end = begin; is_word(*end); end++)
        ;
    if (*end == ':') {
        *end = 0;
        b->at = end + 1;
        return add_label(b, begin);
    }
    end = strchr(begin, ';');
    if (!end)
        return px_fault_plain("a statement has no end: %.40s", begin);
    *end = 0;
    b->at = end + 1;
    return read_instruction(b, begin);
}

/* ------------------------------------------------------------------ the end */

static int is_inside(const struct px_build *b, int scope, int outer)
{
    while (scope != outer && scope != b->parents[scope])
        scope = b->parents[scope];
    return scope == outer;
}

/* Branches know their label's name and their own scope until now. */
static int resolve_labels(struct px_build *b)
{
    for (int i = 0; i < b->program->nops; i++) {
        struct px_op *op = &b->program->ops[i];
        const char *name = (const char *)(intptr_t)op->offset;
        int best = -1;

        if (!op->branch)
            continue;
        for (int j = 0; j < b->nlabels; j++)
            if (!strcmp(b->labels[j].name, name) &&
                is_inside(b, op->sub, b->labels[j].scope) &&
                (best < 0 || b->labels[j].scope > b->labels[best].scope))
                best = j;
        if (best < 0)
            return px_fault_plain("there is no label %s", name);
        op->target = b->labels[best].pc;
    }
    return PX_NEXT;
}

/* Arguments stay where they are from now on. */
static int finish(struct px_build *b)
{
    struct px_program *program = b->program;

    if (!program->name || !program->nops)
        return px_fault_plain("the text has no kernel");
    for (int i = 0; i < program->nops; i++)
        program->ops[i].arg = program->args + (uintptr_t)program->ops[i].arg;
    return resolve_labels(b);
}

void px_program_free(struct px_program *program)
{
    if (!program)
        return;
    px_registers_clear();
    for (int i = 0; i < program->nvariables; i++) {
        px_memory_remove((uintptr_t)program->variables[i]);
        free(program->variables[i]);
    }
    free(program->variables);
    free(program->ops);
    free(program->args);
    free(program->constants);
    free(program->text);
    free(program);
}

struct px_program *px_parse(char *text)
{
    struct px_build b = {.at = text};
    int code = PX_NEXT;

    b.program = calloc(1, sizeof *b.program);
    if (!b.program) {
        px_fault_plain("out of memory");
        free(text);
        return NULL;
    }
    b.program->text = text;
    b.program->sink = px_build_place(&b, 256);
    code = open_scope(&b);
    while (!code && *(b.at = skip(b.at)))
        code = read_statement(&b);
    if (!code)
        code = finish(&b);
    free(b.names);
    free(b.labels);
    free(b.parents);
    if (code) {
        px_program_free(b.program);
        return NULL;
    }
    return b.program;
}
