/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h: problems whose kernels are interpreted: each template and each
   feature of it, on the GPUs named. */
#pragma once

#define ROWS     " g=3 m=300 split=skew "
#define GATHERED " gather=a tokens=100 topk=3"

/* X(devices, line) */
#define PTX_LINES(X)                                                           \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 alpha=any beta=any")      \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 beta=1")                  \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 d=f32")                   \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 bias=1")                  \
    X("10.0 9.0 8.0",                                                          \
      "fprop bf16" ROWS "n=256 k=128 activation=swiglu bias=1 prob=1 saved=1") \
    X("10.0 9.0 8.0",                                                          \
      "fprop bf16" ROWS "n=256 k=128 activation=clamped_swiglu interleave=32") \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 activation=squared_relu") \
    X("10.0 9.0 8.0",                                                          \
      "fprop bf16" ROWS                                                        \
      "n=272 k=72 activation=swiglu interleave=1 bias=1 prob=1 "               \
      "saved=1")                                                               \
    X("9.0", "fprop bf16" ROWS                                                 \
             "n=256 k=72 activation=geglu interleave=1 d=f32 saved=1")         \
    X("10.0 9.0 8.0",                                                          \
      "fprop fp16" ROWS "n=136 k=72 activation=gelu bias=1 prob=1 saved=1")    \
    X("10.0 9.0 8.0",                                                          \
      "fprop bf16" ROWS "n=136 k=72 activation=gelu_tanh saved=1")             \
    X("10.0 9.0 8.0",                                                          \
      "fprop fp16" ROWS "n=256 k=128 activation=geglu interleave=8")           \
    X("10.0 9.0 8.0", "fprop fp16" ROWS "n=256 k=128 activation=situ")         \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 pointers=b")              \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 sizes=host")              \
    X("10.0 9.0 8.0", "fprop bf16 g=3 m=128 n=300 k=128 split=skew ragged=n")  \
    X("10.0 9.0 8.0",                                                          \
      "fprop bf16 g=2 m=128 n=256 k=128 ragged=none pointers=abd")             \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 layout=nn")               \
    X("10.0 9.0 8.0", "fprop bf16 g=3 m=301 n=250 k=130 split=skew align=2")   \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=128 outside=zero")            \
    X("10.0 9.0 8.0",                                                          \
      "dgrad bf16" ROWS "n=256 k=128 activation=swiglu prob=1 dprob=1 "        \
      "outside=zero")                                                          \
    X("10.0 9.0 8.0", "dgrad bf16" ROWS                                        \
                      "n=256 k=128 activation=swiglu prob=1 dbias=1 dprob=1")  \
    X("10.0 9.0 8.0",                                                          \
      "dgrad fp16" ROWS "n=256 k=128 activation=reglu interleave=8")           \
    X("10.0 9.0 8.0",                                                          \
      "dgrad bf16" ROWS                                                        \
      "n=136 k=72 activation=swiglu interleave=1 prob=1 dbias=1 "              \
      "dprob=1")                                                               \
    X("10.0 9.0 8.0",                                                          \
      "dgrad fp16" ROWS "n=136 k=72 activation=gelu prob=1 dbias=1 dprob=1")   \
    X("10.0 9.0 8.0",                                                          \
      "dgrad bf16" ROWS "n=136 k=72 activation=silu prob=1 dprob=1")           \
    X("10.0 9.0 8.0", "dgrad bf16" ROWS "n=136 k=72 activation=relu dbias=1")  \
    X("10.0 9.0 8.0",                                                          \
      "wgrad bf16 g=3 m=256 n=128 k=300 split=skew d=f32 beta=1")              \
    X("10.0 9.0 8.0",                                                          \
      "wgrad bf16 g=3 m=256 n=128 k=300 split=skew alpha=any beta=any")        \
    X("10.0 9.0 8.0",                                                          \
      "wgrad bf16 g=3 m=256 n=128 k=300 split=skew d=f32 beta=1 pointers=d")   \
    X("10.0 9.0 8.0",                                                          \
      "wgrad bf16 g=3 m=256 n=128 k=300 split=skew d=f32 beta=1 "              \
      "microbatches=4")                                                        \
    X("10.0 9.0", "fprop bf16" ROWS "n=256 k=136" GATHERED)                    \
    X("9.0", "fprop fp16" ROWS "n=256 k=136 alpha=any" GATHERED)               \
    X("9.0", "fprop bf16" ROWS "n=256 k=136 activation=swiglu prob=1 "         \
             "saved=1" GATHERED)                                               \
    X("10.0 9.0",                                                              \
      "dgrad bf16" ROWS "n=256 k=136 activation=swiglu prob=1 dprob=1 "        \
      "pointers=b" GATHERED)                                                   \
    X("10.0 9.0", "fprop fp8_row" ROWS "n=264 k=144 d=f32" GATHERED)           \
    X("10.0 9.0", "dgrad fp8_block" ROWS "n=264 k=144" GATHERED)               \
    X("10.0 9.0",                                                              \
      "fprop fp8_block" ROWS "n=256 k=272 activation=swiglu prob=1 saved=1 "   \
      "copies=both" GATHERED)                                                  \
    X("10.0 9.0",                                                              \
      "dgrad fp8_block" ROWS "n=256 k=144 activation=geglu interleave=8 "      \
      "dbias=1 copies=rowwise" GATHERED)                                       \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=256 k=136 lora=16 bias=1")          \
    X("10.0 9.0 8.0", "fprop fp16" ROWS "n=72 k=72 lora=72")                   \
    X("10.0 9.0 8.0",                                                          \
      "dgrad bf16" ROWS "n=256 k=136 lora=8 outside=zero d=f32")               \
    X("10.0 9.0", "fprop bf16" ROWS "n=264 k=72 lora=100")                     \
    X("10.0 9.0 8.0",                                                          \
      "fprop w4a16_mxfp4" ROWS "n=264 k=200 lora=72 sizes=host")               \
    X("10.0 9.0 8.0",                                                          \
      "fprop w4a16_nvfp4 g=3 m=20 n=256 k=200 split=skew lora=16")             \
    X("10.0 9.0 8.0", "dgrad w4a16_int4" ROWS "n=200 k=136 lora=136")          \
    X("10.0 9.0 8.0", "fprop fp8_block" ROWS "n=256 k=256")                    \
    X("9.0 8.0", "dgrad fp8_block" ROWS "n=256 k=256")                         \
    X("10.0 9.0 8.0",                                                          \
      "wgrad fp8_block g=3 m=256 n=256 k=384 split=128,128,128")               \
    X("9.0 8.0",                                                               \
      "fprop fp8_block" ROWS "n=256 k=256 activation=swiglu copies=both")      \
    X("9.0", "fprop fp8_block" ROWS                                            \
             "n=256 k=256 activation=swiglu interleave=1 bias=1 prob=1 "       \
             "saved=1 copies=both")                                            \
    X("9.0", "dgrad fp8_block" ROWS                                            \
             "n=128 k=256 activation=swiglu interleave=1 prob=1 dbias=1 "      \
             "dprob=1 copies=both")                                            \
    X("9.0", "dgrad fp8_block" ROWS                                            \
             "n=128 k=256 activation=geglu interleave=1 copies=both")          \
    X("9.0", "fprop fp8_row" ROWS                                              \
             "n=272 k=144 activation=clamped_swiglu interleave=1 saved=1")     \
    X("9.0", "fprop fp8_block" ROWS "n=256 k=256 quantize=mainloop")           \
    X("9.0 8.0",                                                               \
      "dgrad fp8_block" ROWS "n=256 k=256 activation=swiglu interleave=8")     \
    X("9.0 8.0", "fprop fp8_row" ROWS "n=256 k=256")                           \
    X("9.0 8.0", "dgrad fp8_row" ROWS "n=256 k=256")                           \
    X("9.0 8.0", "wgrad fp8_row g=3 m=256 n=256 k=300 split=skew")             \
    X("9.0 8.0", "fprop fp8_tensor" ROWS "n=256 k=256")                        \
    X("9.0 8.0", "wgrad fp8_tensor g=3 m=256 n=256 k=304 split=even")          \
    X("9.0 8.0", "fprop fp8_tensor_delayed" ROWS "n=256 k=256")                \
    X("9.0 8.0", "fprop fp8_block_any" ROWS "n=256 k=256")                     \
    X("9.0 8.0", "fprop mxfp8" ROWS "n=256 k=256")                             \
    X("9.0 8.0", "dgrad mxfp8" ROWS "n=256 k=256")                             \
    X("9.0", "fprop w4a16_int4" ROWS "n=256 k=200")                            \
    X("9.0 8.0", "dgrad w4a16_int4" ROWS "n=200 k=136")                        \
    X("9.0 8.0", "fprop w4a16_int4_zeros" ROWS "n=256 k=200")                  \
    X("9.0 8.0", "dgrad w4a16_int4_zeros" ROWS "n=200 k=136")                  \
    X("9.0", "fprop w8a16_fp8_block" ROWS "n=256 k=200 d=f32")                 \
    X("12.0 10.0 9.0 8.0",                                                     \
      "fprop w4a16_int4_fp16 g=3 m=20 n=256 k=200 split=skew")                 \
    X("9.0", "fprop w4a16_int4_zeros_fp16 g=3 m=300 n=256 k=200 split=skew")   \
    X("9.0 8.0", "dgrad w4a16_int4_fp16" ROWS "n=200 k=136")                   \
    X("10.0 9.0 8.0",                                                          \
      "dgrad w4a16_int4_zeros_fp16" ROWS "n=200 k=136 lora=72")                \
    X("9.0", "fprop w4a16_int4_fp16" ROWS                                      \
             "n=208 k=136 activation=swiglu interleave=1 bias=1 saved=1")      \
    X("9.0 8.0", "fprop w4a16_int4_fp16" ROWS "n=208 k=136 dequantize=pass")   \
    X("12.0 10.0 9.0",                                                         \
      "fprop w4a16_mxfp4 g=3 m=20 n=272 k=200 split=skew "                     \
      "activation=clamped_swiglu interleave=1 bias=1 prob=1 saved=1")          \
    X("12.0 10.0 9.0",                                                         \
      "fprop w4a16_nvfp4 g=3 m=70 n=200 k=72 split=skew bias=1 prob=1")        \
    X("9.0", "fprop w4a16_int4 g=3 m=90 n=208 k=136 split=skew "               \
             "activation=swiglu saved=1 alpha=any")                            \
    X("9.0", "fprop w4a16_int4_zeros g=3 m=20 n=144 k=136 split=skew "         \
             "activation=geglu interleave=2 bias=1 saved=1")                   \
    X("9.0", "fprop w8a16_fp8_block g=3 m=20 n=136 k=136 split=skew "          \
             "activation=gelu prob=1 bias=1 saved=1")                          \
    X("9.0 8.0", "wgrad mxfp8 g=3 m=256 n=256 k=300 split=skew")               \
    X("9.0", "fprop mxfp8" ROWS "n=256 k=256 dequantize=mainloop")             \
    X("9.0 8.0", "fprop mxfp8" ROWS "n=256 k=256 dequantize=pass")             \
    X("9.0", "fprop mxfp8" ROWS "n=256 k=256 dequantize=f16")                  \
    X("9.0 8.0", "fprop mxfp8_ocp" ROWS "n=256 k=256")                         \
    X("9.0 8.0", "fprop mxfp4" ROWS "n=256 k=256")                             \
    X("9.0 8.0", "dgrad mxfp4" ROWS "n=256 k=256")                             \
    X("9.0 8.0", "wgrad mxfp4 g=3 m=256 n=256 k=300 split=skew")               \
    X("9.0 8.0", "fprop nvfp4" ROWS "n=256 k=256")                             \
    X("9.0 8.0", "dgrad nvfp4" ROWS "n=256 k=256")                             \
    X("9.0 8.0", "wgrad nvfp4 g=3 m=256 n=256 k=300 split=skew")               \
    X("9.0 8.0", "fprop nvfp4 g=3 m=20 n=256 k=256 split=skew")                \
    X("9.0 8.0", "fprop mxfp4 g=3 m=20 n=256 k=256 split=skew")                \
    X("10.0 12.0", "fprop mxfp8" ROWS "n=264 k=544")                           \
    X("10.0 12.0", "dgrad mxfp8" ROWS "n=264 k=160 d=f32 outside=zero")        \
    X("10.0 12.0",                                                             \
      "wgrad mxfp8 g=3 m=256 n=136 k=300 split=skew d=f32 beta=1")             \
    X("10.0", "fprop mxfp8" ROWS "n=256 k=160 activation=swiglu bias=1 "       \
              "prob=1 saved=1 copies=both")                                    \
    X("10.0", "fprop mxfp8" ROWS                                               \
              "n=256 k=32 activation=gelu interleave=0 copies=rowwise")        \
    X("10.0", "dgrad mxfp8" ROWS                                               \
              "n=128 k=160 activation=swiglu interleave=8 prob=1 dprob=1")     \
    X("10.0", "dgrad mxfp8" ROWS "n=128 k=160 activation=swiglu prob=1 "       \
              "dprob=1 dbias=1 copies=both")                                   \
    X("10.0",                                                                  \
      "dgrad mxfp8_ocp" ROWS "n=256 k=32 activation=gelu copies=rowwise")      \
    X("10.0", "fprop mxfp4" ROWS "n=256 k=160 activation=swiglu bias=1 "       \
              "prob=1 saved=1 copies=both")                                    \
    X("10.0", "fprop mxfp4" ROWS "n=256 k=32 bias=1 copies=both")              \
    X("10.0", "dgrad mxfp4" ROWS "n=128 k=288 activation=clamped_swiglu "      \
              "interleave=32 prob=1 dprob=1 dbias=1 copies=both")              \
    X("10.0", "dgrad mxfp4" ROWS "n=128 k=160 activation=geglu copies=both")   \
    X("10.0", "fprop fp8_block" ROWS "n=256 k=384 activation=swiglu bias=1 "   \
              "prob=1 saved=1 copies=both")                                    \
    X("10.0", "fprop fp8_block" ROWS "n=512 k=136 activation=geglu "           \
              "interleave=1 saved=1 copies=both")                              \
    X("10.0", "fprop fp8_block" ROWS                                           \
              "n=256 k=128 activation=situ interleave=32 copies=rowwise")      \
    X("10.0", "fprop fp8_block" ROWS "n=128 k=200 bias=1 copies=both")         \
    X("10.0", "dgrad fp8_block" ROWS "n=128 k=256 activation=swiglu prob=1 "   \
              "dprob=1 dbias=1 copies=both")                                   \
    X("10.0", "dgrad fp8_block" ROWS                                           \
              "n=256 k=384 activation=geglu interleave=8 copies=both")         \
    X("10.0",                                                                  \
      "dgrad fp8_block" ROWS "n=256 k=128 activation=gelu copies=rowwise")     \
    X("10.0", "dgrad nvfp4" ROWS "n=128 k=160 activation=silu dbias=1")        \
    X("10.0", "fprop fp8_row" ROWS "n=256 k=144 activation=swiglu")            \
    X("10.0 12.0", "fprop mxfp4" ROWS "n=264 k=544")                           \
    X("10.0 12.0", "dgrad mxfp4" ROWS "n=264 k=160 d=f32 outside=zero")        \
    X("10.0 12.0",                                                             \
      "wgrad mxfp4 g=3 m=256 n=136 k=300 split=skew d=f32 beta=1")             \
    X("10.0 12.0", "fprop nvfp4" ROWS "n=264 k=544")                           \
    X("10.0 12.0", "dgrad nvfp4" ROWS "n=264 k=160 d=f32 outside=zero")        \
    X("10.0 12.0",                                                             \
      "wgrad nvfp4 g=3 m=256 n=136 k=300 split=skew d=f32 beta=1")             \
    X("9.0 8.0", "quantize fp8_block of=x" ROWS "k=256 in=f32")                \
    X("9.0 8.0", "quantize fp8_block of=dy" ROWS "k=256 activation=swiglu")    \
    X("9.0 8.0", "quantize fp8_block of=w g=2 m=256 k=256")                    \
    X("9.0 8.0", "quantize fp8_row of=x" ROWS "k=256 activation=swiglu")       \
    X("9.0 8.0", "quantize fp8_row of=dy" ROWS "k=256")                        \
    X("9.0 8.0", "quantize fp8_tensor of=x" ROWS "k=256")                      \
    X("9.0 8.0", "quantize fp8_tensor_delayed of=x" ROWS "k=256")              \
    X("9.0 8.0", "quantize fp8_block_any of=x" ROWS "k=256")                   \
    X("9.0 8.0", "quantize mxfp8 of=x" ROWS "k=256")                           \
    X("9.0 8.0", "quantize mxfp8_ocp of=dy" ROWS "k=256")                      \
    X("9.0 8.0", "quantize mxfp4 of=x" ROWS "k=256")                           \
    X("9.0 8.0", "quantize mxfp4 of=w g=2 m=256 k=256")                        \
    X("9.0 8.0", "quantize nvfp4 of=x" ROWS "k=256")                           \
    X("9.0 8.0", "quantize nvfp4 of=w g=2 m=256 k=256")                        \
    X("9.0 8.0", "dequantize fp8_block of=x" ROWS "k=256")                     \
    X("9.0 8.0", "dequantize nvfp4 of=w g=2 m=256 k=256")                      \
    X("9.0 10.0",                                                              \
      "fprop mix_16_i4 g=3 m=9 n=72 k=192 --specs tests/gpu/specs")            \
    X("9.0", "dgrad mix_16_i4 g=3 m=9 n=64 k=24 --specs tests/gpu/specs")      \
    X("9.0",                                                                   \
      "fprop mix_16_u4_powers g=2 m=20 n=72 k=192 --specs tests/gpu/specs")    \
    X("9.0 8.0", "dequantize mxfp4 of=x" ROWS "k=256")                         \
    X("9.0 8.0", "dequantize w4a16_int4_zeros of=w g=3 m=5 k=72")              \
    X("9.0 8.0", "dequantize fp8_block of=w g=3 m=257 k=200")                  \
    X("9.0 8.0", "dequantize fp8_row of=w g=65 m=1 k=8")                       \
    X("9.0 8.0", "transpose fp8_block of=x g=3 m=384 k=256 split=even")        \
    X("9.0 8.0", "transpose mxfp8 of=x g=3 m=384 k=256 split=even")            \
    X("9.0 8.0", "rescale fp8_tensor_delayed of=x g=3 m=300 k=256")            \
    X("9.0 8.0", "bias bf16 of=x" ROWS "k=256")                                \
    X("9.0", "mlp bf16 g=2 m=128 hidden=128 ffn=64")                           \
    X("9.0", "mlp fp8_block g=2 m=256 hidden=256 ffn=128 prob=1")              \
    X("9.0", "mlp fp8_block g=2 m=256 hidden=256 ffn=128 interleave=1")        \
    X("9.0", "mlp bf16 g=2 m=128 hidden=128 ffn=64 activation=gelu")           \
    X("9.0", "mlp mxfp8 g=2 m=128 hidden=128 ffn=64")                          \
    X("9.0", "mlp nvfp4 g=2 m=128 hidden=128 ffn=64")                          \
    X("9.0 8.0", "moe bf16 g=3 m=40 topk=3 hidden=264 ffn=64 residual=1")      \
    X("9.0 8.0", "moe bf16 g=3 m=9 topk=2 hidden=260 ffn=64 prob=x")           \
    X("9.0 8.0", "route g=65 m=600 topk=3 experts=80 first=9 index=i64")       \
    X("9.0 8.0", "route g=65 m=700 topk=3 experts=80 first=9")                 \
    X("10.0 9.0 8.0", "fprop bf16" ROWS "n=264 k=136 scatter=1")               \
    X("9.0", "dgrad fp16" ROWS "n=136 k=72 scatter=1")                         \
    X("9.0 8.0", "moe bf16 g=3 m=70 topk=1 hidden=264 ffn=64 scatter=1")       \
    X("10.0 9.0 8.0", "fprop fp8_row" ROWS "n=264 k=136 scatter=1")            \
    X("9.0", "dgrad fp8_block" ROWS "n=136 k=256 scatter=1")                   \
    X("9.0", "moe fp8_block g=3 m=70 topk=1 hidden=272 ffn=128 scatter=1")     \
    X("9.0", "moe fp8_block g=3 m=33 topk=2 hidden=256 ffn=128 prob=y")
