/* SPDX-License-Identifier: Apache-2.0 */
/* program_test.c: commands, their exit status and output. The program
   that is next to this test is run, with a cache of its own. */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "test_cli.h"

static int quern(const char *arguments)
{
    return test_shell("QUERN_CACHE= '%s/quern' %s 2>&1", test_own_folder(),
                      arguments);
}

static const struct {
    const char *arguments;
    int status;
    const char *says;
} commands[] = {
    {"", 2, "Usage: quern COMMAND"},
    {"--help", 0, "share of the roofline"},
    {"--help", 0, "moe RECIPE g=G m=M topk=K"},
    {"--help", 0, "permute m=M topk=K k=K"},
    {"--version", 0, "quern 0."},
    {"-V", 0, "quern 0."},
    {"help run", 0, "Usage: quern run [OPTION...] PROBLEM\n"},
    {"lst", 2, "no command 'lst'; did you mean 'list'?"},
    {"recipes", 0, "bf16"},
    {"recipes --help", 0, "Example:"},
    {"recipes --fields", 0, "element"},
    {"recipes --specs /no/such/folder", 2, "/no/such/folder"},
    {"recipes nonsense", 2, "is unknown"},
    {"list", 0, "sm_90a"},
    {"list --help", 0, "Example:"},
    {"list -k --arch host", 0, "quern_bf16_fprop_tn_m_f32_scale_host"},
    {"list --arch sm_86", 0, "sm_86: its GPUs run the kernels of sm_80"},
    {"list -k --arch sm_89 mxfp8_quantize", 0, "quern_mxfp8_quantize"},
    {"list --arch sm_110a", 2, "no kernel matches"},
    {"list no_such_kernel", 2, "no kernel matches"},
    {"list a b", 0, "bf16"},
    {"list -k sm80 quern_bf16_fprop_tn_m_f32_scale_host", 0, "_host"},
    {"list -k --arch sm_80,host --arch sm_90a wgrad", 0, "sm_90a"},
    {"emit -o -", 2, "-o - prints one kernel"},
    {"why --help", 0, "Example:"},
    {"why quern_bf16_fprop_tn_m_f32_scale_host", 0, "exists"},
    {"why quern_bf16_fprop_tn_m_f32_scale_hots", 2, "did you mean"},
    {"why", 2, "a problem is missing"},
    {"why fprop bf16 g=2 m=64 n=64 k=64 --backend host", 0, "host"},
    /* what was measured to be the fastest: bench/notes/2026-11-20-fp8.md */
    {"why fprop fp8_block g=8 m=32768 n=7168 k=2048", 0,
     "> quern_fp8_block_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x128"},
    {"why fprop fp8_block g=32 m=32768 n=2880 k=2880", 0,
     "> quern_fp8_block_fprop_tn_m_bf16_sm90a_cooperative_tile128x192x128"},
    /* and on a GPU of less memory and L2: bench/notes/2026-11-26-grid.md */
    {"why wgrad bf16 g=8 m=28672 n=4096 k=16384 d=f32 beta=1", 0,
     "> quern_bf16_wgrad_nt_k_f32_add_sm90a_pingpong_tile128x128x64"},
    {"why wgrad bf16 g=8 m=28672 n=4096 k=16384 d=f32 beta=1 --gpu h100", 0,
     "> quern_bf16_wgrad_nt_k_f32_add_sm90a_cooperative_tile128x256x64"},
    {"why fprop bf16 g=2 m=64 n=64 k=64 --gpu H1000", 2, "known: H200, H100"},
    {"why fprop fp8_block g=4 m=32768 n=4096 k=7168 alpha=any beta=any", 0,
     "> quern_fp8_block_fprop_tn_m_bf16_scale_sm90a_cooperative_tile128x128"},
    {"why fprop fp8_row g=8 m=32768 n=4096 k=7168", 0,
     "> quern_fp8_row_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x128"},
    {"emit --help", 0, "Example:"},
    {"emit -o - quern_bf16_fprop_tn_m_f32_scale_host", 0,
     "d = alpha * a * b^T + beta * c"},
    {"emit -o - fprop", 2, "-o - prints one kernel"},
    {"build --help", 0, "Example:"},
    {"build --arch host", 2, "host kernels are linked"},
    {"describe --help", 0, "Example:"},
    {"describe fprop bf16 g=8 m=64 n=32 k=16", 0, "[8, 32, 16]"},
    {"describe 'fprop bf16 g=8 m=64 n=32 k=16'", 0, "[64, 16]"},
    {"describe fprop bf61 g=8 m=64 n=32 k=16", 2, "did you mean 'bf16'?"},
    {"describe fprop bf16 g=8 m=64 n=32", 2, "k"},
    {"describe wgrad bf16 g=8 m=64 n=32 k=16 beta=any", 0, "beta "},
    {"describe fprop bf16 g=8 m=64 n=32 k=16 ragged=n layout=nn", 0,
     "[8, 64, 16]"},
    {"describe dgrad fp8_block g=8 m=64 n=32 k=40", 0, "[8, 32, 40]"},
    {"describe wgrad nvfp4 g=2 m=64 n=32 k=40", 0, "a.global"},
    {"describe wgrad mxfp8 g=2 m=64 n=32 k=40 layout=nt", 2,
     "of recipe mxfp8 as layout=tn"},
    {"run --help", 0, "Example:"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 --backend hots", 2,
     "did you mean 'host'?"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 --seed=-1", 2, "--seed"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 --backend host --check", 0, "passed"},
    {"run mlp test_i4_f16 g=2 m=16 hidden=32 ffn=16 --backend host --check "
     "--specs tests/host/specs",
     0, "passed"},
    {"run fprop test_rows6 g=2 m=9 n=8 k=64 bias=1 --backend ptx "
     "--specs tests/host/specs",
     2, "follow fp32 sums: recipe test_rows6 must write f32"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 d=f32 split=30,0,7 --backend host "
     "--check",
     0, "passed"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 split=zpif --backend host", 2, "zipf"},
    {"run wgrad bf16 g=3 m=50 n=40 k=64 d=f32 beta=1 --backend host --check", 0,
     "passed"},
    {"run dgrad fp16 g=3 m=50 n=40 k=64 alpha=any beta=any split=skew "
     "--backend host --check",
     0, "passed"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 ragged=n layout=tt beta=any "
     "split=30,0,7 --backend host --check",
     0, "passed"},
    {"run wgrad fp16 g=3 m=50 n=40 k=64 ragged=none d=f32 --backend host "
     "--check",
     0, "passed"},
    {"run wgrad bf16 g=3 m=50 n=40 k=64 beta=any pointers=cd --backend host "
     "--check",
     0, "passed"},
    {"run wgrad bf16 g=3 m=3 n=5 k=64 beta=any pointers=cd --backend host "
     "--check",
     0, "passed"}, /* matrices of 30 bytes, each at a multiple of 16 */
    {"run mlp bf16 g=2 m=4 hidden=5 ffn=3 pointers=both --backend host --check",
     0, "passed"},
    {"run wgrad bf16 g=3 m=50 n=40 k=0 beta=any --backend host --check", 0,
     "passed"},
    {"run fprop mxfp8 g=3 m=50 n=80 k=300 activation=geglu saved=1 "
     "copies=both --backend host --check",
     0, "passed"},
    {"describe fprop fp8_block g=3 m=50 n=256 k=64 bias=1 copies=both", 0,
     "d_columnwise.sf"},
    {"run fprop nvfp4 g=3 m=50 n=96 k=64 activation=swiglu prob=1 copies=both "
     "split=17,0,30 --backend host --check",
     0, "passed"},
    {"run dgrad nvfp4 g=3 m=50 n=96 k=64 activation=geglu prob=1 dbias=add "
     "dprob=1 copies=both sizes=host --backend host --check",
     0, "passed"},
    {"run dgrad fp8_tensor_delayed g=3 m=50 n=96 k=64 copies=both --backend "
     "host --check",
     0, "passed"},
    {"run dgrad mxfp8 g=3 m=50 n=96 k=64 activation=swiglu dbias=1 "
     "dequantize=pass copies=rowwise sizes=host --backend host --check",
     0, "passed"},
    {"describe dgrad nvfp4 g=3 m=50 n=96 k=64 copies=both", 0, "random "},
    {"describe fprop fp8_tensor_delayed g=3 m=50 n=96 k=64 copies=rowwise", 0,
     "history "},
    {"why mlp mxfp8 g=32 m=8000 hidden=2880 ffn=2880 bias=1 "
     "activation=clamped_swiglu prob=1",
     0, "pre = x w1^T"}, /* dequantized to f16, and the bias in a pass */
    {"why fprop nvfp4 g=3 m=50 n=96 k=64 copies=both", 0,
     "made by a cast after the product, "},
    {"why fprop mxfp8 g=3 m=50 n=96 k=64 activation=swiglu copies=both", 0,
     "no kernel makes them in the product's launch"},
    {"why fprop mxfp8 g=3 m=50 n=96 k=64 activation=swiglu copies=both "
     "--backend host",
     0, "leave the product's own launch"},
    {"tune fprop fp8_row g=3 m=50 n=96 k=64 copies=both", 2,
     "copies: a cast of its own makes them"},
    {"run dgrad bf16 g=3 m=50 n=40 k=64 activation=geglu prob=1 dbias=add "
     "dprob=1 --backend host --check",
     0, "passed"},
    {"describe dgrad bf16 g=3 m=50 n=40 k=64 activation=geglu dbias=1", 0,
     "[3, 80]"},
    {"run fprop fp8_block g=3 m=50 n=40 k=300 --backend host --check", 0,
     "passed"},
    {"run dgrad fp8_tensor g=3 m=50 n=40 k=65 alpha=any split=skew "
     "--backend host --check",
     0, "passed"},
    {"run wgrad nvfp4 g=3 m=50 n=40 k=200 d=f32 beta=1 split=17,0,150 "
     "--backend host --check",
     0, "passed"},
    {"run wgrad bf16 g=3 m=50 n=40 k=@/none --backend host", 2,
     "k=@/none: /none: No such file"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 --backend host --routes /none", 2,
     "/none: No such file"},
    {"run fprop bf16 g=3 n=40 k=64 --backend host --check --routes "
     "tests/cli/routes.csv",
     0, "m        5 in 3 groups, 0 to 3"},
    {"run wgrad bf16 g=3 m=50 n=40 --backend host --check --routes "
     "tests/cli/routes.csv",
     0, "k        5 in 3 groups, 0 to 3"},
    {"run route g=8 m=300 topk=2 experts=20 first=4 index=i64 --backend host "
     "--check",
     0, "passed: 0 values differ from an order"},
    {"run permute m=50 topk=3 k=70 in=f16 prob=1 dprob=1 --backend host "
     "--check",
     0, "passed: 0 values differ from an order"},
    {"run combine m=50 topk=3 k=70 prob=1 residual=1 --backend host --check", 0,
     "passed: 0 values differ from an order"},
    {"run route g=8 m=0 topk=2 --backend host --check", 0, "passed"},
    {"bench 'route g=8 m=300 topk=2' 'combine m=50 topk=2 k=64' --backend host "
     "--repeat 3",
     0, "combine m=50"},
    {"bench --help", 0, "Example:"},
    {"bench 'fprop bf16 g=3 m=50 n=40 k=64' 'fprop bf16 g=2 m=8 n=8 k=8' "
     "--backend host --repeat 3",
     0, "TFLOP/s"},
    {"bench fprop bf16 g=2 m=8 n=8 k=8 --backend host --against host --repeat "
     "3",
     0, "ratio"},
    {"bench fprop bf16 g=2 m=8 n=8 k=8 --against auto", 2, "not auto"},
    {"bench fprop bf16 g=2 m=8 n=8 k=8 --overhead --backend host", 2,
     "of the backend jit"},
    {"bench fprop bf16 g=2 m=8 n=8 k=8 --against cublast", 2,
     "did you mean 'cublaslt'?"},
    {"bench fprop bf16 g=2 m=8 n=8 k=8 --streams 9 --against cublaslt", 2,
     "--streams is '9'; it must be a number from 0 to 8"},
    {"run fprop bf16 g=2 m=8 n=8 k=8 --streams 2 --backend host", 2,
     "only the cublaslt backend spreads groups over streams"},
    {"tune --help", 0, "Example:"},
    {"tune", 2, "a problem is missing"},
    {"tune fprop bf16 g=2 m=8 n=8 k=8 --backend host", 2,
     "options.backend is host"},
    {"tune quantize mxfp8 of=x g=3 m=200 k=96", 2, "nothing to tune"},
    {"tune route g=3 m=20 topk=2", 2, "nothing to tune"},
    {"tune fprop bf61 g=2 m=8 n=8 k=8", 2, "did you mean 'bf16'?"},
    {"tune fprop bf16 g=2 m=8 n=8 k=8 --l2 hot", 2, "both, cold or warm"},
    {"tune --merge", 2, "--merge takes the files"},
    {"tune --merge /none", 2, "/none: No such file"},
    {"run quantize mxfp8 of=x g=3 m=200 k=96 --backend host --check", 0,
     "passed"},
    {"run quantize bf16 of=dy g=3 m=200 k=96 dbias=1 copies=rowwise --backend "
     "host "
     "--check",
     0, "from the values before"},
    {"run quantize bf16 of=dy g=3 m=200 k=99 dbias=1 copies=rowwise --backend "
     "host "
     "--check",
     0, "passed"},
    {"run quantize nvfp4 of=x g=3 m=200 k=99 copies=columnwise split=130,0,60 "
     "--backend host --check",
     0, "passed"},
    {"run quantize test_cut of=x g=2 m=64 k=96 --specs tests/cli/specs "
     "--backend host --check",
     0, "passed"},
    {"run mlp test_cut g=2 m=64 hidden=64 ffn=32 --specs tests/cli/specs "
     "--backend host --check",
     2, "recipe test_cut cuts values: its casts lose 0.1"},
    {"run mlp mxfp8_ocp g=40 m=2 hidden=16 ffn=31 prob=1 split=skew --seed 242 "
     "--backend host --check",
     0, "passed"},
    {"run dgrad mxfp8_ocp g=1 m=128 n=1 k=32 split=skew --seed 8 --backend "
     "host --check",
     0, "passed"},
    /* eleven rows are few for ReGLU: where its gate changes sign, an error
       is large */
    {"run mlp mxfp8 g=3 m=279 hidden=48 ffn=66 in=f32 activation=reglu bias=1 "
     "split=144,128,7 --seed 44 --backend host --check",
     0, "on 11 rows"},
    {"run mlp test_delayed_e2m1 g=2 m=64 hidden=64 ffn=32 --specs "
     "tests/cli/specs --backend host --check",
     0, "passed"}, /* each tensor by its own type and magnitude */
    {"run mlp test_delayed_i4 g=2 m=64 hidden=64 ffn=32 --specs "
     "tests/cli/specs --backend host --check",
     0, "passed"},
    {"run mlp test_raw g=2 m=64 hidden=64 ffn=32 --specs tests/cli/specs "
     "--backend host",
     2, "in=bf16: recipe test_raw keeps x as e4m3"},
    {"run mlp test_chance g=2 m=64 hidden=64 ffn=32 prob=1 --specs "
     "tests/cli/specs --backend host --check",
     0, "passed"},
    /* a recipe without dy */
    {"why mlp bf16 g=2 m=64 hidden=64 ffn=64 --gpu A10 --specs tests/cli/specs",
     0, "evidence run"},
    {"why moe bf16 g=2 m=64 topk=2 hidden=64 ffn=64 --gpu A10 --specs "
     "tests/cli/specs",
     0, "evidence compiled"}, /* no route ran */
    {"why permute m=64 topk=2 k=64 --gpu A10 --specs tests/cli/specs", 0,
     "evidence compiled"},
    {"why quantize mxfp8 of=x g=2 m=64 k=64 --gpu H100", 0,
     "> quern_mxfp8_quantize_x_bf16_sm90a"},
    {"run fprop test_serve g=2 m=64 n=32 k=96 --specs tests/cli/specs "
     "--backend host --check",
     0, "passed"},
    {"run mlp test_serve g=2 m=64 hidden=64 ffn=32 grad=0 --specs "
     "tests/cli/specs --backend host --check",
     0, "passed"},
    {"run mlp test_serve g=2 m=64 hidden=64 ffn=32 --specs tests/cli/specs", 2,
     "backward: recipe test_serve has no dy, the gradient of the output; write "
     "grad=0, or name its type in the spec"},
    {"describe dgrad test_serve g=2 m=64 n=32 k=96 --specs tests/cli/specs", 2,
     "dgrad: recipe test_serve has no dy, the gradient of the output; it "
     "serves fprop, or name"},
    {"describe wgrad test_serve g=2 m=64 n=32 k=96 --specs tests/cli/specs", 2,
     "wgrad: recipe test_serve has no dy"},
    {"run quantize test_serve of=dy g=2 m=64 k=96 --specs tests/cli/specs", 2,
     "of=dy: recipe test_serve has no dy, the gradient of the output; write "
     "of=x or of=w, or name"},
    /* as specs/recipes/README.md says what multiplies them */
    {"list -k 'quern_test_next_*_fprop_*sm90a*' --specs tests/cli/specs", 0,
     "quern_test_next_bf16_fprop_tn_m_bf16_scale_sm90a_"},
    {"list -k 'quern_test_next_f16_fprop_*_host' --specs tests/cli/specs", 0,
     "quern_test_next_f16_fprop_tn_m_f16_scale_host"},
    {"list -k 'quern_test_next_f16_fprop_*sm80*' --specs tests/cli/specs", 0,
     "quern_test_next_f16_fprop_tn_m_f16_scale_sm80_"},
    {"run fprop test_next_f16 g=2 m=64 n=32 k=96 --specs tests/cli/specs "
     "--backend host --check",
     0, "passed"},
    {"list -k 'quern_test_serve_fprop_*_few' --specs tests/cli/specs", 0,
     "quern_test_serve_fprop_tn_m_bf16_scale_sm90a_"},
    {"list -k 'quern_test_digits_fprop_*_few' --specs tests/cli/specs", 2,
     "no kernel matches"},
    {"recipes test_serve --specs tests/cli/specs", 0,
     "tests/cli/specs/recipes/serve.lua:3"},
    {"run quantize nvfp4 of=dy g=3 m=200 k=96 dbias=1 --backend host --check",
     0, "passed"},
    {"run quantize bf16 of=dy g=3 m=200 k=96 copies=rowwise prob=1 dbias=add "
     "dprob=1 --backend host --check",
     0, "passed"},
    {"run quantize fp8_row of=w g=2 m=40 k=96 in=f32 --backend host --json", 0,
     "\"gbps\""},
    {"run transpose fp8_block of=x g=3 m=200 k=96 --backend host", 0,
     "quern_fp8_block_quantize_x_copy_host"},
    {"run rescale fp8_tensor_delayed of=x --backend host", 0, "history_x"},
    {"run quantize mxfp7 of=x g=3 m=200 k=96", 2, "did you mean 'mxfp"},
    {"run quantise mxfp8 of=x g=3 m=200 k=96", 2, "quantise"},
    {"run quantize mxfp8 of=y g=3 m=200 k=96", 2, "x, w, dy is expected"},
    {"describe quantize nvfp4 of=dy g=3 m=200 k=96 dbias=1", 0,
     "columnwise.sf"},
    {"why quantize nvfp4 of=x g=3 m=200 k=96 --backend host", 0, "read twice"},
    {"bench 'quantize mxfp8 of=x g=3 m=200 k=96' --backend host --repeat 3", 0,
     "GB/s"},
    {"run 'fprop fp8_block g=3 m=200 n=512 k=128 quantize=auto prob=1 "
     "activation=swiglu copies=both split=17,0,183' --backend host --check",
     0, "passed"},
    {"run fprop fp8_row g=3 m=200 n=64 k=128 quantize=auto split=17,0,183 "
     "--backend host --check",
     0, "passed"},
    {"run dgrad fp8_block g=3 m=200 n=64 k=128 quantize=auto prob=1 dbias=1 "
     "dprob=1 activation=swiglu split=17,0,183 --backend host --check",
     0, "passed"},
    {"run dgrad mxfp8 g=3 m=200 n=64 k=128 quantize=auto dbias=add beta=1 "
     "split=17,0,183 sizes=host --backend host --check",
     0, "passed"},
    {"run dgrad fp8_row g=3 m=200 n=64 k=128 quantize=auto dbias=1 copies=both "
     "split=17,0,183 --backend host --check",
     0, "passed"},
    {"describe dgrad fp8_block g=3 m=200 n=64 k=128 quantize=auto dbias=1", 0,
     "[3, 128]"},
    {"describe fprop mxfp8 g=3 m=200 n=128 k=128 quantize=auto dequantize=f16",
     2, "or by dequantize=pass"},
    {"run dgrad mxfp4 g=3 m=200 n=64 k=160 quantize=auto dbias=1 "
     "dequantize=pass split=17,0,183 --backend host --check",
     0, "passed"},
    {"describe fprop mxfp8 g=3 m=200 n=128 k=128 dequantize=fp8", 2,
     "use all of e4m3's exponents"},
    {"run fprop mxfp4 g=3 m=200 n=64 k=160 dequantize=fp8 split=17,0,183 "
     "--backend "
     "host --check",
     0, "passed"},
    {"run mlp nvfp4 g=3 m=90 hidden=64 ffn=48 prob=1 split=17,0,60 --backend "
     "host --check",
     0, "passed"},
    {"run mlp bf16 g=3 m=90 hidden=40 ffn=24 dw=f32 beta=1 --backend host "
     "--check --json",
     0, "\"dw2\""},
    {"run mlp bf16 g=3 m=90 hidden=64 ffn=48 --check", 0, "dw2"},
    {"run mlp mxfp8 g=3 m=90 hidden=64 ffn=48 prob=1 bias=1 split=17,0,60 "
     "--backend host --check",
     0, "db2"},
    {"describe mlp fp8_block g=3 m=90 hidden=64 ffn=48 bias=1", 0, "db1"},
    {"describe bias bf16 of=x g=3 m=90 k=64 prob=1", 0, "read; written"},
    {"why mlp nvfp4 g=3 m=90 hidden=64 ffn=48 bias=1 --backend host", 0,
     "db2 and its part of dprob"},
    {"run mlp bf16 g=3 m=90 hidden=64", 2, "ffn= is missing"},
    {"describe mlp fp8_row g=3 m=90 hidden=64 ffn=48", 0, "w2_columnwise.sf"},
    {"why mlp mxfp8 g=3 m=90 hidden=64 ffn=48 --backend host", 0,
     "> quern_mxfp8_fprop_tn_m_bf16_scale_host"},
    {"why mlp bf16 g=3 m=90 hidden=64 ffn=48 beta=1 dw=f32 microbatches=4", 0,
     "_microbatches8"},
    {"bench 'mlp fp16 g=3 m=90 hidden=64 ffn=48' --backend host --repeat 3", 0,
     "TFLOP/s"},
    {"demo fp8_blok --backend host", 2, "did you mean 'fp8_block'?"},
    {"recipes nvfp4", 0, "to_e4m3(amax"},
    {"recipes nvfp5", 2, "did you mean 'nvfp4'?"},
    {"cache --help", 0, "Example:"},
    {"cache where", 0, "folder"},
    {"cache verfy", 2, "did you mean 'verify'?"},
    {"demo --help", 0, "OLMoE"},
    {"pack --help", 0, "--undo writes the"},
};

TEST(test_commands)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        int status;

        if (!share_has((int)i))
            continue;
        status = quern(commands[i].arguments);
        if (status != commands[i].status)
            fail_msg("quern %s: status %d, not %d: %.500s\n",
                     commands[i].arguments, status, commands[i].status,
                     test_output);
        if (!strstr(test_output, commands[i].says))
            fail_msg("quern %s: '%.500s' lacks '%s'\n", commands[i].arguments,
                     test_output, commands[i].says);
    }
}

/* A number of the first row that was printed as JSON. */
static double number(const cJSON *rows, const char *name)
{
    const cJSON *item =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(rows, 0), name);

    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

/* With a driver that does nothing, only the library's own share is left.
   The bounds are a hundred times a core's time, and more under the
   sanitizers, since a machine may be busy: enough to see a plan that generates
   or compiles again, or a run that waits for anything. */
TEST(test_overhead)
{
    const char *own = test_own_folder();
    const double slow = strstr(own, "/asan/") ? 10 : 1;
    cJSON *rows;

    if (test_shell(
            "QUERN_CACHE= QUERN_CUDA='%s/../lib/fake_cuda.so' '%s/quern' "
            "bench --overhead fprop bf16 g=8 m=64 n=64 k=64 --json - 2>&1",
            own, own) == 3 &&
        strstr(test_output, "libnvrtc")) {
        print_message("skip: a plan needs libnvrtc\n");
        skip();
    }
    rows = cJSON_Parse(test_output);
    if (!rows)
        fail_msg("quern bench --overhead: %s", test_output);
    assert_true(number(rows, "open_ms") < 50 * slow);
    assert_true(number(rows, "cold_ms") > number(rows, "warm_ms"));
    assert_true(number(rows, "warm_ms") < 100 * slow);
    assert_true(number(rows, "again_us") < 20000 * slow);
    assert_true(number(rows, "run_us") < 50 * slow);
    cJSON_Delete(rows);
    if (test_shell("QUERN_CACHE= QUERN_CUDA='%s/../lib/fake_cuda.so' "
                   "'%s/quern' bench --overhead fprop mxfp8 g=1 m=64 n=64 "
                   "k=64 dequantize=pass 2>&1",
                   own, own) != 2 ||
        !strstr(test_output, "this run is several"))
        fail_msg("dequantize=pass: %s", test_output);
}

/* Every word of a parser is in its part of the help. */
static void check_help(const char *line, const char *begin, const char *end)
{
    char known[1024], word[32];
    const char *list;
    char *part, *save;

    assert_int_equal(quern(line), 2);
    list = strstr(test_output, "known: ");
    assert_non_null(list);
    snprintf(known, sizeof known, "%s", list + 7);
    assert_int_equal(quern("--help"), 0);
    part = strstr(test_output, begin);
    assert_non_null(part);
    assert_non_null(strstr(part, end));
    *strstr(part, end) = '\0';
    for (char *key = strtok_r(known, " \n", &save); key;
         key = strtok_r(NULL, " \n", &save)) {
        snprintf(word, sizeof word, "[%s", key);
        if (!strstr(part, word)) {
            word[0] = ' '; /* one that must be given */
            if (!strstr(part, word))
                fail_msg("--help lacks %s of '%s'", key, line);
        }
    }
}

TEST(test_help_has_every_field)
{
    check_help("describe fprop bf16 zz=1", "of a product,", "of a cast,");
    check_help("describe quantize mxfp8 zz=1", "of a cast,", "of an MLP,");
    check_help("describe mlp bf16 zz=1", "of an MLP,", "explains a command");
}

/* --ptx, --sass and --resources of the kernel that an H200 would run, with a
   compiler that gives no real cubin: unknown figures are reported as such. */
TEST(test_code)
{
    static const char show[] =
        "QUERN_CACHE= QUERN_NVRTC='%s/../lib/fake_nvrtc.so' PATH=/bin:/usr/bin "
        "CUDA_HOME=/none '%s/quern' run %s 2>&1";
    static const char problem[] = "fprop fp16 g=8 m=64 n=64 k=64 ragged=none";
    const char *own = test_own_folder();
    char line[200];

    snprintf(line, sizeof line, "%s --ptx", problem);
    assert_int_equal(test_shell(show, own, own, line), 0);
    assert_non_null(strstr(test_output, "ptx of quern_fp16_fprop_tn_none"));
    snprintf(line, sizeof line, "%s --resources", problem);
    assert_int_equal(test_shell(show, own, own, line), 0);
    assert_non_null(strstr(test_output, "registers     -"));
    assert_non_null(strstr(test_output, "0 bytes stored"));
    snprintf(line, sizeof line, "%s --sass", problem);
    assert_int_equal(test_shell(show, own, own, line), 3);
    assert_non_null(strstr(test_output, "needs cuobjdump or nvdisasm"));
    snprintf(line, sizeof line, "%s --sass --backend host", problem);
    assert_int_equal(test_shell(show, own, own, line), 3);
    assert_non_null(strstr(test_output, "is made for the host"));
    assert_int_equal(test_shell(show, own, own, "--kernel quern_nothing --ptx"),
                     2);
}

/* A machine without a GPU shows an H200's kernels. */
TEST(test_code_without_gpu)
{
    static const char *const lines[] = {
        "fprop bf16 g=2 m=9 n=16 k=16",
        "fprop mxfp8 g=8 m=32768 n=2048 k=7168",
        "fprop mxfp4 g=8 m=32768 n=2048 k=7168",
        "fprop mxfp8 g=8 m=320 n=2048 k=7168",
        "fprop mxfp8 g=2 m=64 n=64 k=64 dequantize=pass",
        "fprop nvfp4 g=2 m=9 n=16 k=16 copies=both activation=swiglu",
        "fprop fp8_block g=2 m=64 n=256 k=64 bias=1 copies=both",
        "fprop fp8_tensor_delayed g=3 m=50 n=96 k=64 copies=rowwise",
        "quantize mxfp8 of=x g=2 m=9 k=16",
        "quantize fp8_row of=w g=2 m=9 k=16",
        "rescale fp8_tensor_delayed of=x",
    };
    const char *own = test_own_folder();

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const int status = test_shell(
            "run() { QUERN_CACHE= QUERN_NVRTC='%s/../lib/fake_nvrtc.so' "
            "'%s/quern' run --ptx %s 2>&1; }; there=$(QUERN_CUDA="
            "'%s/../lib/fake_cuda.so' run); here=$(QUERN_CUDA=/none run); "
            "echo \"$here\"; [ \"$here\" = \"$there\" ]",
            own, own, lines[i], own);

        if (status || !strstr(test_output, "_sm90a") ||
            !strstr(test_output, "ptx of "))
            fail_msg("%s: %s", lines[i], test_output);
    }
}

/* An error in a user's spec is shown with its line, and nothing is written. */
TEST(test_emit_is_all_or_nothing)
{
    char folder[] = "/tmp/quern-emit-XXXXXX";
    const char *own = test_own_folder();

    assert_non_null(mkdtemp(folder));
    assert_int_equal(
        test_shell(
            "cd %s && mkdir -p mine/recipes && echo 'recipe \"x\" { accum = "
            "f23 }' > mine/recipes/x.lua && '%s/quern' emit --specs mine -o "
            "out 2>&1",
            folder, own),
        2);
    if (!strstr(test_output, "x.lua:1: error: "))
        fail_msg("no place in: %s", test_output);
    assert_int_equal(test_shell("ls %s/out 2>&1", folder), 2);
    assert_int_equal(
        test_shell(
            "cd %s && '%s/quern' emit -o out --arch host 2>&1 && cp -r out "
            "copy && '%s/quern' emit -o out --arch host 2>&1 && diff -r out "
            "copy && find out -newer copy -name '*host.c'",
            folder, own, own),
        0);
    assert_null(strstr(test_output, "quern_"));
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* A program that links what `quern build` made: it must find the kernel in
   the registry, and no generator, compiler or cache may be needed. All
   shipped kernels are built by one configuration, one of them by that with
   sanitizers. */
TEST(test_linked_kernels)
{
    char folder[] = "/tmp/quern-link-XXXXXX";
    const char *own = test_own_folder();
    const int sanitized = strstr(own, "/asan/") != NULL;

    assert_non_null(mkdtemp(folder));
    if (test_shell("cd %s && '%s/quern' build -o kernels %s 2>&1", folder, own,
                   sanitized ? "quern_bf16_fprop_tn_m_bf16_sm90a_pingpong_"
                               "tile128x128x64_cluster1x1"
                             : "") == 3 &&
        strstr(test_output, "libnvrtc")) {
        print_message("skip: quern build needs libnvrtc\n");
        test_shell("rm -r %s", folder);
        skip();
    }
    if (!strstr(test_output, "libquern_kernels.a"))
        fail_msg("quern build: %s", test_output);
    if (test_shell(
            "${CC:-cc} -o %s/program examples/c_aot.c "
            "'-I%s/../include' "
            "-I%s/kernels %s/kernels/libquern_kernels.a '-L%s/../lib' -lquern "
            "'-Wl,-rpath,%s/../lib' %s 2>&1",
            folder, own, folder, folder, own, own,
            sanitized ? "-fsanitize=address,undefined" : "") != 0)
        fail_msg("link: %s", test_output);
    if (test_shell(
            "QUERN_CACHE= QUERN_GEN=/none QUERN_NVRTC=/none %s/program 2>&1",
            folder) != 0)
        fail_msg("program: %s", test_output);
    assert_non_null(strstr(test_output, "quern_bf16_fprop_tn_m_bf16_sm90a"));
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}
