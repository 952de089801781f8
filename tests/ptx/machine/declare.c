/* SPDX-License-Identifier: Apache-2.0 */
/* declare.c: the declarations of a kernel's text: registers, parameters,
   variables of shared and global memory. */
#include "build.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int type_bytes(const char *type)
{
    int bits = atoi(type + strcspn(type, "0123456789"));

    return bits / 8;
}

static int add_name(struct px_build *b, struct px_name name)
{
    if (px_grow(&b->names, b->nnames, &b->room_names, sizeof *b->names))
        return PX_FAULT;
    b->names[b->nnames++] = name;
    return PX_NEXT;
}

/* One register, or registers NAME<count>. */
static int add_register(struct px_build *b, const char *type, char *name)
{
    char *many = strchr(name, '<');
    struct px_name made = {.name = name, .scope = b->scope, .kind = 'r'};
    int n = 1, lane;

    if (many) {
        *many = 0;
        n = made.count = atoi(many + 1);
    }
    if (!strcmp(type, ".pred")) {
        made.kind = 'p';
        made.at = px_build_place(b, 4 * n);
        return add_name(b, made);
    }
    lane = type_bytes(type);
    made.wide = lane == 8;
    if (lane > 8)
        return px_fault_plain("registers of type %s are not known", type);
    made.at = px_build_place(b, (made.wide ? 256 : 128) * n);
    return add_name(b, made);
}

/* .reg .b32 a, b; */
int px_declare_registers(struct px_build *b, char *at)
{
    char *save, *type = strtok_r(at, " \t\n", &save), *name;

    while ((name = strtok_r(NULL, " \t\n,", &save)))
        if (add_register(b, type, name))
            return PX_FAULT;
    return PX_NEXT;
}

/* .param .align 64 .b8 name[128] */
int px_declare_param(struct px_build *b, char *at)
{
    struct px_program *program = b->program;
    int align = 0, bytes = 0, count = 1, is_pointer = 0;
    char *save, *word = strtok_r(at, " \t\n", &save), *name = NULL, *many;

    for (; word; word = strtok_r(NULL, " \t\n", &save)) {
        if (!strcmp(word, ".align"))
            align = atoi(strtok_r(NULL, " \t\n", &save));
        else if (!strcmp(word, ".ptr")) /* .global .align N of what it names */
            is_pointer = 1;
        else if (*word == '.' && strcmp(word, ".param") && !is_pointer)
            bytes = type_bytes(word);
        else if (*word != '.')
            name = word;
    }
    if (is_pointer)
        align = bytes;
    if (!name || !bytes || program->nparams == PX_MAX_PARAMS)
        return px_fault_plain("a parameter is not understood");
    many = strchr(name, '[');
    if (many) {
        *many = 0;
        count = atoi(many + 1);
    }
    if (!align)
        align = bytes;
    program->param_bytes = (program->param_bytes + align - 1) / align * align;
    program->params[program->nparams].offset = program->param_bytes;
    program->params[program->nparams++].bytes = bytes * count;
    add_name(b, (struct px_name){.name = name,
                                 .kind = 's',
                                 .value = (uint64_t)program->param_bytes});
    program->param_bytes += bytes * count;
    return PX_NEXT;
}

/* .align 4 .b8 name[12]: a variable of an array's length, 1 if it has none. */
struct variable {
    char *name;
    size_t align, bytes; /* of an element */
    size_t count;        /* 0: [] */
};

/* `values`: the text after a =, or NULL. */
static int read_variable(struct variable *v, char *at, char **values)
{
    char *save, *word = strtok_r(at, " \t\n", &save), *many;

    *v = (struct variable){.bytes = 1, .count = 1};
    for (; word && !v->name; word = strtok_r(NULL, " \t\n", &save)) {
        if (!strcmp(word, ".align"))
            v->align = (size_t)atoi(strtok_r(NULL, " \t\n", &save));
        else if (*word == '.')
            v->bytes = (size_t)type_bytes(word);
        else
            v->name = word;
    }
    *values = word && *word == '=' ? save : NULL;
    if (!v->name || !v->bytes)
        return px_fault_plain("a variable is not understood");
    if (!v->align)
        v->align = v->bytes;
    many = strchr(v->name, '[');
    if (many) {
        *many = 0;
        v->count = (size_t)atoi(many + 1);
    }
    return PX_NEXT;
}

/* Variables with a size get their places first; an extern one's value is set
   where the kernel begins. */
int px_declare_shared(struct px_build *b, char *at, int is_extern)
{
    struct px_program *program = b->program;
    struct variable v;
    int align;

    if (read_variable(&v, at, &at))
        return PX_FAULT;
    align = (int)v.align;
    if (is_extern)
        return add_name(
            b, (struct px_name){
                   .name = v.name, .kind = 's', .shared = 1, .count = align});
    program->shared_bytes = (program->shared_bytes + align - 1) / align * align;
    add_name(b, (struct px_name){.name = v.name,
                                 .kind = 's',
                                 .shared = 1,
                                 .value = PX_SHARED_START +
                                          (uint64_t)program->shared_bytes});
    program->shared_bytes += (int)(v.bytes * v.count);
    return PX_NEXT;
}

/* {1, 2, 3} or one value; the rest is 0. */
static int set_values(unsigned char *to, const struct variable *v, char *at)
{
    char *save, *word = strtok_r(at, " \t\n{},", &save);

    for (size_t i = 0; word; word = strtok_r(NULL, " \t\n{},", &save), i++) {
        uint64_t value;

        if (i == v->count || !px_number(word, &value))
            return px_fault_plain("values of %s are not understood", v->name);
        memcpy(to + i * v->bytes, &value, v->bytes);
    }
    return PX_NEXT;
}

/* A variable of the module, zeros at first. */
int px_declare_variable(struct px_build *b, char *at)
{
    struct px_program *program = b->program;
    struct variable v;
    char *values;
    void *memory;

    if (read_variable(&v, at, &values) ||
        px_grow(&program->variables, program->nvariables, &b->room_variables,
                sizeof *program->variables))
        return PX_FAULT;
    memory = aligned_alloc(64, (v.bytes * v.count + 64) / 64 * 64);
    if (!memory || px_memory_add((uintptr_t)memory, v.bytes * v.count))
        return px_fault_plain("out of memory");
    memset(memory, 0, v.bytes * v.count);
    program->variables[program->nvariables++] = memory;
    if (values && set_values(memory, &v, values))
        return PX_FAULT;
    return add_name(b, (struct px_name){.name = v.name,
                                        .kind = 's',
                                        .value = (uintptr_t)memory});
}

/* Static shared memory that the text declares further down must be known where
   the dynamic one is used. */
void px_declare_ahead(struct px_build *b, const char *text)
{
    int end = b->program->shared_bytes;

    for (const char *at = text; (at = strstr(at, ".shared .align")); at++) {
        int align = atoi(at + 14);
        const char *type = strstr(at, ".b8"), *many = strchr(at, '[');

        if (!type || !many || many > strchr(at, ';') || many[1] == ']')
            continue;
        end = (end + align - 1) / align * align + atoi(many + 1);
    }
    for (int i = 0; i < b->nnames; i++)
        if (b->names[i].kind == 's' && b->names[i].count) {
            int align = b->names[i].count;

            b->names[i].value =
                PX_SHARED_START + (uint64_t)((end + align - 1) / align * align);
            b->names[i].count = 0;
        }
}
