# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM as a peer of peers.py and peers_fp8.py, wherever a `deep_gemm` can be imported.

It is no part of quern and nothing needs it. PyPI has it built, as sgl-deep-gemm:

    pip download --no-deps sgl-deep-gemm && unzip -q sgl_deep_gemm-*.whl -d site && PYTHONPATH=site python3 bench/peers.py

Its groups begin at multiples of 128 rows: operands are padded before anything is timed, real rows
are counted. For wgrad it takes the tokens' counts on the host, too, and adds to fp32. FP8 operands
are cast by its own helpers, blocks as fp8_block's. Results are compared first; unsupported cases
are named.
"""

from itertools import accumulate

import torch

try:
    import deep_gemm
    from deep_gemm.utils import layout, math as casts
except (ImportError, OSError, RuntimeError):  # none, or one built for another PyTorch
    deep_gemm = None

BLOCK = 128


class Padded:
    """Groups of rows that begin at multiples of BLOCK, zeros between."""

    def __init__(self, rows):
        self.lengths = [(r + BLOCK - 1) // BLOCK * BLOCK for r in rows]
        self.used, self.total = sum(rows), sum(self.lengths)
        places = [end - length for end, length in zip(accumulate(self.lengths), self.lengths)]
        self.index = torch.cat([torch.arange(r) + place for r, place in zip(rows, places)]).cuda()
        self.group = torch.full((self.total,), -1, dtype=torch.int32, device="cuda")
        numbers = torch.arange(len(rows), dtype=torch.int32).repeat_interleave(torch.tensor(rows))
        self.group[self.index] = numbers.cuda()
        self.sizes = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")

    def put(self, tensor):
        out = torch.zeros(self.total, *tensor.shape[1:], dtype=tensor.dtype, device="cuda")
        out[self.index] = tensor[:self.used]
        return out

    def take(self, tensor):
        return tensor[self.index]


def by_rows(a, b, fp8):
    """A function of (d, layout) for y = a b^T, b one matrix for each group, both k-major."""
    if not fp8:
        return lambda d, group: deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, group)
    blocks = [casts.per_block_cast_to_fp8(w, False) for w in b]
    a = casts.per_token_cast_to_fp8(a, False)
    a = a[0], layout.get_mn_major_tma_aligned_tensor(a[1])
    b = torch.stack([w for w, _ in blocks]), torch.stack([sf for _, sf in blocks])
    return lambda d, group: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, group)


def by_tokens(a, b, pad, fp8):
    """A function of d for d += a^T b, in each group's tokens."""
    lengths, sizes = pad.lengths, pad.sizes
    if not fp8:
        return lambda d: deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, lengths, sizes, d)

    def turned(x):
        codes, sf = casts.per_channel_cast_to_fp8(x, False)
        parts = [part.T.contiguous().flatten() for part in codes.split(lengths)]
        return torch.cat(parts), sf.T

    a, b = turned(a), turned(b)
    return lambda d: deep_gemm.k_grouped_fp8_gemm_nt_contiguous(a, b, d, lengths, sizes, d)


def takes(layer):
    """wgrad overwrites BF16, which it does not."""
    return deep_gemm is not None and layer.op != "wgrad"


def calls_of(layer, a, b, fp8):
    """The call to time, and one that returns its result. a, b: the unquantized operands."""
    pad = Padded(layer.rows)
    if layer.op == "accumulate":
        d = torch.zeros_like(layer.sum)
        work = by_tokens(pad.put(a), pad.put(b), pad, fp8)
        return lambda: work(d), lambda: d
    b = b if layer.op == "fprop" else b.transpose(-2, -1).contiguous()
    d = torch.zeros(pad.total, b.shape[1], dtype=torch.bfloat16, device="cuda")
    work = by_rows(pad.put(a), b, fp8)
    return lambda: work(d, pad.group), lambda: pad.take(d)
