/* SPDX-License-Identifier: Apache-2.0 */
/* old_spellings.h: words of problem lines that were renamed, for
   test_problem.c. */
#pragma once

/* Each old word is refused, and the message names the new one. */
TEST(refuses_old_spellings)
{
#define LINE "fprop bf16 g=1 m=1 n=8 k=8 "
    static const struct {
        const char *text, *says;
    } rows[] = {
        {LINE "expand=auto", "expand= is called dequantize= now"},
        {LINE "expand=ahead", "expand=ahead is called dequantize=pass now"},
        {LINE "expand=inside", "is called dequantize=mainloop now"},
        {LINE "dequantize=ahead", "is called dequantize=pass now"},
        {LINE "dequantize=inside", "is called dequantize=mainloop now"},
        {LINE "parts=2", "parts= is called microbatches= now"},
        {LINE "quantize=apart", "is called quantize=pass now"},
        {LINE "quantize=inline", "is called quantize=mainloop now"},
        {LINE "quantize=any", "is called quantize=auto now"},
        {LINE "copies=row", "copies=row is called copies=rowwise now"},
        {"requantize bf16 of=x", "requantize is called transpose now"},
    };
#undef LINE
    struct quern_context *ctx = test_open();
    struct qn_problem p;
    struct qn_quantization q;
    struct qn_mlp mlp;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        test_expect(qn_problem_parse(ctx, rows[i].text, &p), QUERN_EINVAL,
                    rows[i].says);
    test_expect(qn_quantize_parse(ctx, "requantize bf16 of=x", &q),
                QUERN_EINVAL, "requantize is called transpose now");
    test_expect(qn_quantize_parse(ctx, "quantize bf16 copies=column", &q),
                QUERN_EINVAL, "copies=column is called copies=columnwise now");
    test_expect(qn_mlp_parse(ctx, "mlp bf16 parts=2", &mlp), QUERN_EINVAL,
                "parts= is called microbatches= now");
    qn_close(ctx);
}
