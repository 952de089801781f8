/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the program `quern`: a table of commands. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "choose/trial.h"
#include "cli.h"
#include "problem/field.h"

static const struct qn_command *const commands[] = {
    &qn_cmd_recipes, &qn_cmd_list,     &qn_cmd_why,   &qn_cmd_emit,
    &qn_cmd_build,   &qn_cmd_run,      &qn_cmd_bench, &qn_cmd_tune,
    &qn_cmd_cache,   &qn_cmd_describe, &qn_cmd_pack,  &qn_cmd_demo,
};
enum { NCOMMANDS = sizeof commands / sizeof commands[0] };

/* The words that lines begin with, and their fields. */
static void print_line(const char *words, const struct qn_fields *line,
                       int first)
{
    char fields[1024], text[1200];

    snprintf(text, sizeof text, "%s %s", words,
             qn_field_usage(line, first, fields, sizeof fields));
    qn_table_wrapped(text, 4, 80);
}

static void print_lines(void)
{
    printf("of a product,\n");
    print_line("fprop|dgrad|wgrad RECIPE", &qn_line_product, -1);
    printf("of a cast,\n");
    print_line("quantize|transpose|dequantize|rescale|bias RECIPE",
               &qn_line_cast, -1);
    printf("of an MLP, forward and backward,\n");
    print_line("mlp RECIPE", &qn_line_mlp, -1);
    printf("of an MoE layer, from tokens to tokens, forward and backward,\n");
    print_line("moe RECIPE", &qn_line_moe, -1);
    printf("or of the steps around its products:\n");
    for (int work = 0; work < QUERN_ROUTING_COUNT; work++)
        print_line(qn_routing_name(work), &qn_line_route, work);
}

/* Read by the library and the program; docs/environment.md has defaults. */
static void print_environment(void)
{
    static const struct {
        const char *variable, *meaning;
    } rows[] = {
        {"QUERN_KERNELS", "a folder of quern build, whose kernels are loaded"},
        {"QUERN_CACHE", "folders of compiled kernels, separated by ':'"},
        {"QUERN_CACHE_SIZE", "bytes of the one for new entries (default 4G)"},
        {"QUERN_TUNE", "folders with files of measured winners"},
        {"QUERN_LOG", "error, info or debug: the log that -v prints"},
        {"QUERN_TRUST", "compiled, interpreted or run: evidence without trial"},
        {"QUERN_CHECKER", "the program that tries kernels: a quern"},
        {"QUERN_THREADS", "threads of the host backend, 1 to 256"},
        {"QUERN_CUDA", "the CUDA driver's library"},
        {"QUERN_NVRTC", "the library NVRTC, 12 or later"},
        {"QUERN_CUBLASLT", "the library cuBLASLt"},
        {"QUERN_GEN", "the generator, libquern_gen.so"},
        {"QUERN_CC", "the C compiler of host kernels"},
    };

    printf("\nEnvironment:\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-16s %s\n", rows[i].variable, rows[i].meaning);
}

/* The list of commands, the environment, and exit statuses. */
static void print_help(void)
{
    printf("Usage: quern COMMAND [ARGUMENT...]\n"
           "Grouped GEMM kernels, written from Lua specs.\n\n");
    for (int i = 0; i < NCOMMANDS; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\nA PROBLEM is one short line, for example\n"
           "  quern run fprop bf16 g=8 m=4096 n=2048 k=7168 split=skew\n"
           "  quern run quantize mxfp8 of=x g=8 m=4096 k=7168\n"
           "  quern run moe bf16 g=8 m=4096 topk=2 hidden=2048 ffn=768\n");
    print_lines();
    print_environment();
    printf("\n`quern help COMMAND` explains a command. Exit status: 0 success, "
           "1 a check\nfailed, 2 bad use, 3 the machine can't (no GPU, no "
           "compiler).\n");
}

/* The row of that name, or NULL. */
static const struct qn_command *find(const char *name)
{
    for (int i = 0; i < NCOMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Name the nearest command; the status of bad use. */
static int unknown(const char *name)
{
    const char *names[NCOMMANDS + 1] = {NULL};
    const char *nearest;

    for (int i = 0; i < NCOMMANDS; i++)
        names[i] = commands[i]->name;
    nearest = qn_message_nearest(name, names);
    fprintf(stderr, "quern: error: no command '%s'", name);
    if (nearest)
        fprintf(stderr, "; did you mean '%s'?", nearest);
    fprintf(stderr, "\nquern --help lists all.\n");
    return QN_EXIT_USAGE;
}

/* After a word that takes nothing; the status of bad use. */
static int superfluous(const char *word, const char *argument)
{
    fprintf(stderr,
            "quern: error: '%s' is not expected after %s; `quern COMMAND "
            "--help` explains a command\n",
            argument, word);
    return QN_EXIT_USAGE;
}

/* Errors that argp and getopt print before a command with --json begins. */
static struct {
    FILE *usual; /* stderr as it was; NULL: nothing is held back */
    char *text;
    size_t length;
    const char *command;
} held;

/* bench alone gives --json a word, which is "-" for JSON. */
static int wants_json(const struct qn_command *command, int argc, char **argv)
{
    const char *word = "--json";

    for (const struct argp_option *o = command->options; o->name; o++)
        if (o->key == QN_KEY_JSON_FILE)
            word = "--json=-";
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word) ||
            (word[6] && i + 1 < argc && !strcmp(argv[i], "--json") &&
             !strcmp(argv[i + 1], "-")))
            return 1;
    return 0;
}

static void hold_errors(const struct qn_command *command)
{
    FILE *stream = open_memstream(&held.text, &held.length);

    if (!stream)
        return;
    held.usual = stderr;
    held.command = command->name;
    stderr = stream;
}

/* As one line of JSON, without the command's name before it and the advice to
   try --help after it. */
static void release_errors(void)
{
    const struct qn_options options = {.command = held.command, .json = 1};
    char begin[64], *text, *advice;

    if (!held.usual)
        return;
    fclose(stderr);
    stderr = held.usual;
    held.usual = NULL;
    text = held.text;
    snprintf(begin, sizeof begin, "quern %s: ", held.command);
    if (!strncmp(text, begin, strlen(begin)))
        text += strlen(begin);
    advice = strstr(text, "\nTry `");
    if (advice)
        *advice = '\0';
    if (*text)
        qn_message_text(&options, QN_EXIT_USAGE, "", text);
    free(held.text);
}

/* "summary" and "help" around argp's own list of options. */
static int run(const struct qn_command *command, int argc, char **argv)
{
    struct qn_options options = {
        .command = command->name, .known = command->options, .seed = 1};
    char doc[4096], program[64];
    struct argp argp = {
        .options = command->options,
        .parser = qn_options_parse,
        .args_doc = command->arguments,
        .doc = doc,
    };

    snprintf(doc, sizeof doc, "%s\v%s", command->summary, command->help);
    snprintf(program, sizeof program, "quern %s", command->name);
    argv[0] = program;
    argp_err_exit_status = QN_EXIT_USAGE;
    if (wants_json(command, argc, argv))
        hold_errors(command);
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
        return QN_EXIT_USAGE;
    release_errors();
    return command->run(&options);
}

/* `quern help COMMAND`. */
static int help(char *name)
{
    const struct qn_command *command = find(name);
    char option[] = "--help", *argv[] = {name, option, NULL};

    return command ? run(command, 2, argv) : unknown(name);
}

/* At the end of the program: the output has arrived, or the status says that it
   has not. A reader that ends early, as `head` does, has read enough: the
   status is the command's. argp's own help ends here, too. */
static void close_output(void)
{
    int failed = ferror(stdout);

    release_errors();
    if ((fclose(stdout) == 0 && !failed) || errno == EPIPE)
        return;
    fprintf(stderr, "quern: error: the output cannot be written: %s\n",
            strerror(errno));
    _exit(QN_EXIT_UNABLE);
}

int main(int argc, char **argv)
{
    const struct qn_command *command;

    /* a closed pipe, and a file past ulimit -f, are errors as any other */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    atexit(close_output);
    if (argc > 1 && strcmp(argv[1], QN_TRIAL_COMMAND) == 0)
        return qn_trial_serve(argc, argv);
    if (argc < 2) {
        print_help();
        return QN_EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc == 3) /* as COMMAND --help */
        return help(argv[2]);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        if (argc > 2)
            return superfluous(argv[1], argv[argc - 1]);
        print_help();
        return QN_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        if (argc > 2)
            return superfluous(argv[1], argv[2]);
        printf("quern %s\n", quern_version());
        return QN_EXIT_OK;
    }
    command = find(argv[1]);
    return command ? run(command, argc - 1, argv + 1) : unknown(argv[1]);
}
