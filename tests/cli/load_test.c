/* SPDX-License-Identifier: Apache-2.0 */
/* load_test.c: clock and power as NVML gives them, the roofline's peaks, and
   how many CTAs a multiprocessor has room for. */

#include "oracle/cubin.h"
#include "oracle/gpu.h"
#include "test_cli.h"

static int clock_of(void *device, int type, unsigned *mhz)
{
    (void)device;
    assert_int_equal(type, 1);
    *mhz = 1755;
    return 0;
}

static int power_of(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 612500;
    return 0;
}

static int refuse(void *device, unsigned *milliwatts)
{
    (void)device, (void)milliwatts;
    return 3; /* NVML_ERROR_NOT_SUPPORTED */
}

/* Values missing from NVML stay 0, which tables print as "-". */
TEST(test_load_is_what_nvml_says)
{
    struct qn_nvml nvml = {.clock = clock_of, .power = power_of};
    struct qn_gpu gpu = {.nvml = &nvml, .nvml_tried = 1};
    struct qn_gpu_load load = {0, 0};

    qn_gpu_load(&gpu, &load);
    assert_int_equal(load.clock, 1755);
    assert_true(load.watts > 612.4 && load.watts < 612.6);
    load = (struct qn_gpu_load){0, 0};
    nvml.power = refuse;
    nvml.clock = NULL;
    qn_gpu_load(&gpu, &load);
    assert_int_equal(load.clock, 0);
    assert_true(load.watts <= 0);
    qn_gpu_load(NULL, &load);
    assert_int_equal(load.clock, 0);
}

static void check_peak(int major, int minor, int bits, double times)
{
    const struct qn_gpu gpu = {.device = {.major = major, .minor = minor},
                               .peak_flops = 100};

    assert_int_equal((int)qn_gpu_peak(&gpu, bits), (int)(100 * times));
}

static void check_room(int version, int threads, int registers, int shared,
                       int ctas, const char *by)
{
    struct qn_occupancy o;

    qn_cubin_occupancy(version, threads, registers, shared, &o);
    assert_int_equal(o.ctas, ctas);
    if (by)
        assert_string_equal(o.by, by);
    else
        assert_null(o.by);
}

/* By the vendor's tables of a multiprocessor. */
TEST(test_peaks)
{
    check_peak(8, 0, 16, 1);
    check_peak(8, 0, 8, 1);
    check_peak(8, 9, 8, 2);
    check_peak(9, 0, 8, 2);
    check_peak(9, 0, 4, 2);
    check_peak(10, 0, 4, 4);
    check_room(90, 384, 168, 199168, 1, "shared memory");
    check_room(90, 128, 24, 0, 16, "threads");
    check_room(90, 128, 255, 0, 2, "registers");
    check_room(80, 32, 16, 0, 32, "CTAs");
    check_room(86, 128, 128, 48 << 10, 2, "shared memory");
    check_room(86, 512, 32, 0, 3, "threads");
    check_room(70, 128, 32, 0, 0, NULL);
}
