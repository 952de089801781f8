/* SPDX-License-Identifier: Apache-2.0 */
/*
** trace_print.c: a rule's expression as a function in C or CUDA C.
**
** A term that is used once stands where it is used; one that is used again
** gets a name. CUDA's arithmetic is written with its rounding, so that no
** option of a compiler fuses or approximates it.
*/
#include "lua/base.h"
#include "rule/trace.h"

#include <string.h>

static const char *const texts[QG_OP_COUNT][2] = {
#define QG_OP_TEXT(name, operands, c, cuda) {c, cuda},
    QG_OPS(QG_OP_TEXT)
#undef QG_OP_TEXT
};

static const char *const c_types[QG_KINDS] = {
    "float",        "unsigned int", "int",         "unsigned int",
    "unsigned int", "unsigned int", "unsigned int"};

struct qg_printer {
    struct qg *q;
    struct qg_text *out;
    int language;
    struct qg_node *nodes[QG_MAX_NODES]; /* by order, NULL: not used */
};

/* Count how often each term is used. */
static void visit(struct qg_printer *p, const struct qg_node *const_node)
{
    struct qg_node *node = (struct qg_node *)const_node;

    if (p->nodes[node->order]) {
        node->count++;
        return;
    }
    p->nodes[node->order] = node;
    node->count = 1;
    node->name = 0;
    for (int i = 0; i < node->operands; i++)
        visit(p, node->operand[i]);
}

static void put_constant(struct qg_printer *p, const struct qg_node *node)
{
    char buffer[32];

    if (node->kind == QG_FLOAT)
        qg_text_put(p->q, p->out, qg_hex_float(buffer, node->value));
    else
        qg_text_print(p->q, p->out, node->bits < 10 ? "%uu" : "0x%xu",
                      node->bits);
}

static void put_node(struct qg_printer *p, const struct qg_node *node);

/* A term's text. CUDA has a shorter form of 1 / x, with the same rounding. */
static const char *text_of(const struct qg_printer *p,
                           const struct qg_node *node)
{
    const struct qg_node *first = node->operand[0];

    if (p->language && node->op == QG_OP_DIV && first->op == QG_OP_CONSTANT &&
        first->value == 1)
        return "__frcp_rn($2)";
    return texts[node->op][p->language];
}

/* An expression has parentheses around the whole; others are calls. */
static int is_call(const char *text)
{
    return *text != '(';
}

/* Without the parentheses around the whole. */
static void put_bare(struct qg_printer *p, const struct qg_node *node)
{
    struct qg_text *out = p->out;
    size_t start = out->length;

    put_node(p, node);
    if (node->op != QG_OP_CONSTANT && !node->name &&
        !is_call(texts[node->op][p->language])) {
        memmove(out->data + start, out->data + start + 1,
                out->length - start - 2);
        out->length -= 2;
        out->data[out->length] = 0;
    }
}

/* The term itself; its operands by name where they have one, and arguments of
   calls without parentheses of their own. */
static void put_term(struct qg_printer *p, const struct qg_node *node)
{
    const char *text = text_of(p, node);
    const int call = is_call(text);

    for (; *text; text++) {
        if (*text != '$')
            qg_text_add(p->q, p->out, text, 1);
        else
            (call ? put_bare : put_node)(p, node->operand[*++text - '1']);
    }
}

static void put_node(struct qg_printer *p, const struct qg_node *node)
{
    if (node->op == QG_OP_CONSTANT)
        put_constant(p, node);
    else if (node->name)
        qg_text_print(p->q, p->out, "t%d", node->name);
    else
        put_term(p, node);
}

static void put_statement(struct qg_printer *p, const struct qg_node *node)
{
    put_bare(p, node);
    qg_text_put(p->q, p->out, ";\n");
}

/* Terms come in the order in which they were made: operands first. */
static void put_names(struct qg_printer *p)
{
    int names = 0;

    for (int i = 0; i < QG_MAX_NODES; i++) {
        struct qg_node *node = p->nodes[i];

        if (!node || node->count < 2 || !node->operands)
            continue;
        qg_text_print(p->q, p->out, "    const %s t%d = ", c_types[node->kind],
                      names + 1);
        put_statement(p, node);
        node->name = ++names;
    }
}

void qg_trace_print(struct qg *q, struct qg_text *out, const char *head,
                    const struct qg_node *stored, const struct qg_node *factor,
                    int language)
{
    struct qg_printer *p;

    if (!q->printer)
        q->printer = qg_mem_new(q, sizeof *q->printer);
    p = memset(q->printer, 0, sizeof *p);
    p->q = q;
    p->out = out;
    p->language = language == QG_CUDA;
    visit(p, stored);
    visit(p, factor);
    qg_text_print(q, out, "%s\n{\n", head);
    put_names(p);
    qg_text_put(q, out, "    *sf = ");
    put_statement(p, stored);
    qg_text_put(q, out, "    return ");
    put_statement(p, factor);
    qg_text_put(q, out, "}\n");
}
