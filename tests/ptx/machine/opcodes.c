/* SPDX-License-Identifier: Apache-2.0 */
/* opcodes.c: from an instruction's name to the function that does it. */
#include "build.h"

#include <stdlib.h>
#include <string.h>

/* In a table by a sum of the name, made once. */
enum { SLOTS = 2048 };
static const struct px_row *slots[SLOTS];

static unsigned sum_of(const char *name)
{
    unsigned sum = 5381;

    for (; *name; name++)
        sum = sum * 33 + (unsigned char)*name;
    return sum;
}

static void fill_slots(void)
{
    static const struct px_row *const tables[] = {
        px_rows_integer, px_rows_float, px_rows_pair, px_rows_warp,
        px_rows_control};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct px_row *row = tables[i]; row->name; row++) {
            unsigned at = sum_of(row->name) % SLOTS;

            while (slots[at])
                at = (at + 1) % SLOTS;
            slots[at] = row;
        }
}

static const struct px_row *find_row(const char *name)
{
    unsigned at = sum_of(name) % SLOTS;

    if (!slots[sum_of(px_rows_integer->name) % SLOTS])
        fill_slots();
    while (slots[at] && strcmp(slots[at]->name, name))
        at = (at + 1) % SLOTS;
    return slots[at];
}

static int add_argument(struct px_build *b, int32_t at)
{
    struct px_program *program = b->program;

    if (program->nargs == b->room_args) {
        size_t room = b->room_args ? 2 * b->room_args : 4096;
        int32_t *larger = realloc(program->args, room * sizeof *larger);

        if (!larger)
            return px_fault_plain("out of memory");
        program->args = larger;
        b->room_args = room;
    }
    program->args[program->nargs++] = at;
    b->op->nargs++;
    return PX_NEXT;
}

int px_give(struct px_build *b, int i, char type)
{
    const struct px_operand *operand = &b->operand[i];
    const char *needs = type == 'd'   ? "a register of 64 bits is needed"
                        : type == 'p' ? "a predicate is needed"
                                      : "a register of 32 bits is needed";

    if (i >= b->noperands)
        return px_bad(b, "too few operands");
    if (operand->kind == '_')
        return add_argument(b, operand->at);
    if (operand->shared)
        return add_argument(b, px_build_shared(b, operand->value, type == 'd'));
    if (operand->kind == 'i')
        return add_argument(
            b, px_build_constant(
                   b, type == 'p' && operand->value ? PX_ALL : operand->value,
                   type == 'd'   ? 1
                   : type == 'p' ? 2
                                 : 0));
    if (operand->not ||
        (type == 'p' ? operand->kind != 'p'
                     : operand->kind != 'r' || operand->wide != (type == 'd')))
        return px_bad(b, needs);
    return add_argument(b, operand->at);
}

int px_give_address(struct px_build *b, int i)
{
    const struct px_operand *operand = &b->operand[i];

    if (i >= b->noperands)
        return px_bad(b, "has no address");
    b->op->wide = operand->kind == 'i' || operand->wide;
    return px_give(b, i, b->op->wide ? 'd' : 'r');
}

static int use_row(struct px_build *b, const struct px_row *row)
{
    int n = (int)strlen(row->types);

    b->op->run = row->run;
    b->op->meet = row->meet;
    if (n != b->noperands)
        return px_bad(b, "has another count of operands");
    for (int i = 0; i < n; i++)
        if (px_give(b, i, row->types[i]))
            return PX_FAULT;
    return PX_NEXT;
}

static int use_branch(struct px_build *b)
{
    if (b->noperands != 1 || b->operand[0].kind != 'l')
        return px_bad(b, "its label is not understood");
    b->op->branch = 1;
    b->op->offset = (int64_t)(intptr_t)b->operand[0].name;
    b->op->sub = (short)b->scope;
    return PX_NEXT;
}

int px_opcode(struct px_build *b)
{
    static px_setup *const setups[] = {
        px_setup_memory, px_setup_convert, px_setup_compare, px_setup_move,
        px_setup_async,  px_setup_matrix,  px_setup_warp,    px_setup_barrier,
        px_setup_map,    px_setup_tensor};
    const struct px_row *row;

    if (!strcmp(b->mnemonic, "bra") || !strcmp(b->mnemonic, "bra.uni"))
        return use_branch(b);
    row = find_row(b->mnemonic);
    if (row)
        return use_row(b, row);
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        int code = setups[i](b);

        if (code != PX_NEXT)
            return code == PX_EXIT ? PX_NEXT : PX_FAULT;
    }
    return px_bad(b, "the instruction is not known");
}
