/* SPDX-License-Identifier: Apache-2.0 */
/*
** mirror_test.c: runtime/quern.h and bench/libquern.py, which repeats its
** structures for Python, are of one mind.
*/
#include <stdio.h>

#include "internal.h"
#include "test_cli.h"

/* A structure in Python, its bytes, and where its last field begins. */
#define ROW(python, name, last)                                                \
    {                                                                          \
        python, sizeof(struct quern_##name),                                   \
            offsetof(struct quern_##name, last)                                \
    }

static const struct {
    const char *python;
    size_t bytes, last;
} structures[] = {
    ROW("Tensor", tensor, global_bytes),
    ROW("Args", args, host_sizes),
    ROW("Problem", problem, split),
    ROW("Description", description, random),
    ROW("Quantization", quantization, split),
    ROW("QuantizeArgs", quantize_args, host_sizes),
    ROW("QuantizeDescription", quantize_description, random),
    ROW("OpenOptions", open_options, tune),
    ROW("Mlp", mlp, split),
    ROW("MlpArgs", mlp_args, host_sizes),
    ROW("MlpDescription", mlp_description, random),
    ROW("PlanOptions", plan_options, streams),
    ROW("PlanInfo", plan_info, streams),
    ROW("TuneOptions", tune_options, user),
    ROW("TuneResult", tune_result, count),
};

#undef ROW

TEST(test_python_has_our_structures)
{
    char expected[80];

    assert_int_equal(
        test_shell("PYTHONPATH='%1$s/../../bench:%1$s/../../../bench' python3 "
                   "-B -c '\n"
                   "import ctypes, libquern\n"
                   "for name, kind in vars(libquern).items():\n"
                   "    if isinstance(kind, type(ctypes.Structure)):\n"
                   "        last = getattr(kind, kind._fields_[-1][0])\n"
                   "        print(name, ctypes.sizeof(kind), last.offset)' "
                   "2>&1",
                   test_own_folder()),
        0);
    for (size_t i = 0; i < sizeof structures / sizeof structures[0]; i++) {
        snprintf(expected, sizeof expected, "%s %zu %zu\n",
                 structures[i].python, structures[i].bytes, structures[i].last);
        if (!strstr(test_output, expected))
            fail_msg("quern.h has %s; Python:\n%s", expected, test_output);
    }
}
