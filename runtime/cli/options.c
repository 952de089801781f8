/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: one parser for the options of every command; a command's argp
   lists those that it takes, so no other one reaches this file. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "base/types.h"

/* A number; argp_error ends the program otherwise. */
static uint64_t parse_between(const char *text, uint64_t least, uint64_t most,
                              const char *what, struct argp_state *state)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end || value < least ||
        value > most)
        argp_error(state, "%s is '%s'; it must be a number from %llu to %llu",
                   what, text, (unsigned long long)least,
                   (unsigned long long)most);
    return value;
}

static uint64_t parse_number(const char *text, uint64_t most, const char *what,
                             struct argp_state *state)
{
    return parse_between(text, 0, most, what, state);
}

/* The same with a fraction, or an exponent. */
static double parse_real(const char *text, double most, const char *what,
                         struct argp_state *state)
{
    char *end;
    const double value = strtod(text, &end);

    if (end == text || *end || *text == '-' || !(value >= 0 && value <= most))
        argp_error(state, "%s is '%s'; it must be a number from 0 to %.0f",
                   what, text, most);
    return value;
}

/* An enum quern_backend by its name. */
static int parse_backend(const char *text, struct argp_state *state)
{
    const char *nearest;
    int backend;

    if (!strcmp(text, "ptx")) {
        qn_interpret(state);
        return QUERN_BACKEND_JIT;
    }
    if (qn_backend_find(text, &backend))
        return backend;
    nearest = qn_message_nearest(text, qn_backend_words.names);
    argp_error(state, "no backend '%s'; %s%s%s", text,
               nearest ? "did you mean '" : "there are auto, host, jit, aot",
               nearest ? nearest : ", cublaslt and ptx", nearest ? "'?" : "");
    return 0;
}

/* One that is always the same. */
static int parse_against(const char *text, struct argp_state *state)
{
    const int backend = parse_backend(text, state);

    if (backend == QUERN_BACKEND_AUTO)
        argp_error(state, "--against takes a backend by its name, not auto");
    return backend;
}

static int parse_l2(const char *text, struct argp_state *state)
{
    int l2 = 0;

    if (!qn_l2_find(text, &l2))
        argp_error(state, "--l2 is '%s'; it must be both, cold or warm", text);
    return l2;
}

static void add_specs(struct qn_options *options, const char *folder,
                      struct argp_state *state)
{
    if (options->nspecs == QN_MAX_SPECS)
        argp_error(state, "at most %d folders of specs", QN_MAX_SPECS);
    else
        options->specs[options->nspecs++] = folder;
}

/* Once or again, each a list with commas: one list in the end. */
static void add_arch(struct qn_options *options, const char *list,
                     struct argp_state *state)
{
    const size_t used = strlen(options->archs);
    const size_t room = sizeof options->archs - used;

    if ((size_t)snprintf(options->archs + used, room, "%s%s", used ? "," : "",
                         list) >= room)
        argp_error(state, "--arch: over %zu characters", sizeof options->archs);
    options->arch = options->archs;
}

/* Options that take a text as it is, or a word of a list. */
static error_t parse_what(int key, char *text, struct argp_state *state)
{
    struct qn_options *options = state->input;

    switch (key) {
    case 'o':
        options->output = text;
        return 0;
    case QN_KEY_JSON_FILE:
        options->json = strcmp(text, "-") == 0;
        options->json_file = options->json ? NULL : text;
        return 0;
    case QN_KEY_SPECS:
        add_specs(options, text, state);
        return 0;
    case QN_KEY_ARCH:
        add_arch(options, text, state);
        return 0;
    case QN_KEY_ROUTES:
        options->routes = text;
        return 0;
    case QN_KEY_KERNEL:
        options->kernel = text;
        return 0;
    case QN_KEY_BACKEND:
        options->backend = parse_backend(text, state);
        options->interprets = !strcmp(text, "ptx");
        return 0;
    case QN_KEY_L2:
        options->l2 = parse_l2(text, state);
        return 0;
    case QN_KEY_GPU:
        options->gpu = text;
        return 0;
    case QN_KEY_STORE:
        options->store = text;
        return 0;
    case QN_KEY_RECIPES:
        options->recipes = text;
        return 0;
    case QN_KEY_FORMAT:
        options->format = text;
        return 0;
    case QN_KEY_EXPERTS:
        options->experts_of = text;
        return 0;
    case QN_KEY_AGAINST:
        options->against = parse_against(text, state);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* An option that says two things says neither, nor does one without a word.
   Only --specs and --arch may be repeated. */
static void check_given(int key, const char *text, struct argp_state *state)
{
    struct qn_options *options = state->input;
    const struct argp_option *option = options->known;
    uint64_t bit;

    if (key < 'a' || key >= QN_KEY_END)
        return;
    bit =
        UINT64_C(1) << (key < QN_KEY_JSON ? key - 'a' : key - QN_KEY_JSON + 26);
    while (option->name && option->key != key)
        option++;
    if (text && !*text)
        argp_error(state, "--%s is empty", option->name);
    if (options->given & bit && key != QN_KEY_SPECS && key != QN_KEY_ARCH)
        argp_error(state, "--%s is given twice", option->name);
    options->given |= bit;
}

error_t qn_options_parse(int key, char *text, struct argp_state *state)
{
    struct qn_options *options = state->input;

    check_given(key, text, state);
    switch (key) {
    case 'j':
        options->jobs = (int)parse_number(text, 1024, "-j", state);
        return 0;
    case 'v':
        options->verbose = 1;
        return 0;
    case 'k':
        options->kernels = 1;
        return 0;
    case QN_KEY_JSON:
        options->json = 1;
        return 0;
    case QN_KEY_PTX:
        options->show |= QN_SHOW_PTX;
        return 0;
    case QN_KEY_SASS:
        options->show |= QN_SHOW_SASS;
        return 0;
    case QN_KEY_RESOURCES:
        options->show |= QN_SHOW_RESOURCES;
        return 0;
    case QN_KEY_TRACE:
        options->trace = 1;
        return 0;
    case QN_KEY_CHECK:
        options->check = 1;
        return 0;
    case QN_KEY_FIELDS:
        options->fields = 1;
        return 0;
    case QN_KEY_OVERHEAD:
        options->overhead = 1;
        return 0;
    case QN_KEY_SEED:
        options->seed = parse_number(text, UINT64_MAX, "--seed", state);
        return 0;
    case QN_KEY_REPEAT:
        options->repeat =
            (int)parse_between(text, 1, 100000, "--repeat", state);
        return 0;
    case QN_KEY_STREAMS:
        options->streams =
            (int)parse_number(text, QUERN_MAX_STREAMS, "--streams", state);
        return 0;
    case QN_KEY_BUDGET:
        options->budget = parse_real(text, 86400, "--budget", state);
        return 0;
    case QN_KEY_MERGE:
        options->merge = 1;
        return 0;
    case QN_KEY_MISSING:
        options->missing = 1;
        return 0;
    case QN_KEY_LIST:
        options->list = 1;
        return 0;
    case QN_KEY_TOKENS:
        options->tokens =
            (int64_t)parse_between(text, 1, 1 << 24, "--tokens", state);
        return 0;
    case QN_KEY_RANKS:
        options->ranks = (int)parse_between(text, 1, 4096, "--ranks", state);
        return 0;
    case QN_KEY_UNDO:
        options->undo = 1;
        return 0;
    case QN_KEY_FORWARD:
        options->forward = 1;
        return 0;
    case 'n':
        options->dry_run = 1;
        return 0;
    case ARGP_KEY_ARGS:
        options->words = state->argv + state->next;
        options->nwords = state->argc - state->next;
        return 0;
    }
    return parse_what(key, text, state);
}
