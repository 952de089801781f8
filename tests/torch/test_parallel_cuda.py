# SPDX-License-Identifier: Apache-2.0
"""ExpertParallelMoE on GPUs: one rank through NCCL and symmetric memory, in a graph, without a wait
of the host; and a rank for each GPU, up to 4, if there are several. QUERN_TORCH_DEVICE=cuda runs
it; test_parallel.py has more ranks, on the CPU."""

import pytest
import torch
from conftest import DEVICE, captured
from test_parallel import passed, run

import quern.torch as qt
import ranks

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: QUERN_TORCH_DEVICE=cuda")
EXPERTS, HIDDEN, FFN, TOKENS, TOPK = 6, 256, 128, 200, 3
GPUS = min(torch.cuda.device_count(), 4)
several = pytest.mark.skipif(GPUS < 2, reason="needs 2 GPUs")
BOTH = ["all_to_all", "symmetric"]


def make(capacity=TOKENS * TOPK, **more):
    """A layer, the arguments of its call, and dy."""
    module = qt.ExpertParallelMoE(EXPERTS, HIDDEN, FFN, capacity=capacity, device=DEVICE,
                                  params_dtype=torch.bfloat16, **more)
    torch.manual_seed(4)
    x = torch.randn(TOKENS, HIDDEN).bfloat16().requires_grad_()
    probs = torch.rand(TOKENS, TOPK).requires_grad_()
    return module, (x, draw(0), probs), torch.randn(TOKENS, HIDDEN).bfloat16()


def draw(seed):
    torch.manual_seed(seed)
    indices = torch.rand(TOKENS, EXPERTS).argsort(1)[:, :TOPK].contiguous()
    indices[::7, 1] = EXPERTS
    return indices


def step(layer, arguments, weights, dy):
    y = layer(*arguments)
    return y.detach(), *torch.autograd.grad(y, (arguments[0], arguments[2], *weights), dy)


@pytest.mark.parametrize("exchange", BOTH)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("prob, once", [("x", None), ("h", None), ("h", TOKENS), ("y", None)])
def test_bits_of_moe(group, recipe, prob, once, exchange):
    module, arguments, dy = make(recipe=recipe, prob=prob, token_capacity=once, exchange=exchange)
    weights = module.w1, module.w2

    def alone(x, indices, probs):
        return qt.moe(x, indices, probs, *weights, recipe=recipe, prob=prob)

    found, expected = (step(f, arguments, weights, dy) for f in (module, alone))
    for name, a, b in zip(("y", "dx", "dprob", "dw1", "dw2"), found, expected):
        assert torch.equal(a, b), name
    module.check()


@pytest.mark.parametrize("recipe, more", [
    ("bf16", {}), ("mxfp8", {}), ("bf16", dict(token_capacity=TOKENS)),
    ("bf16", dict(token_capacity=TOKENS - 1, capacity=TOKENS * TOPK)),
    ("fp8_block", dict(dispatch="quantized", capacity=640, token_capacity=256)),
    ("bf16", dict(chunks=2, token_capacity=TOKENS // 2)),
    ("bf16", dict(exchange="symmetric")),
    ("bf16", dict(exchange="symmetric", chunks=2, token_capacity=TOKENS // 2))])
def test_a_graph_with_other_indices_before_each_replay(group, recipe, more):
    module, arguments, dy = make(recipe=recipe, **more)
    weights = module.w1, module.w2
    graph, results = captured(lambda: step(module, arguments, weights, dy))
    for seed in range(4):
        arguments[1].copy_(draw(seed) if seed < 3 else torch.full_like(arguments[1], -1))
        graph.replay()
        assert all(map(torch.equal, results, step(module, arguments, weights, dy))), seed


@pytest.mark.parametrize("exchange", BOTH)
@pytest.mark.parametrize("once", [None, TOKENS])
def test_the_host_does_not_wait(group, once, exchange):
    module, arguments, dy = make(overlap_wgrad=True, token_capacity=once, exchange=exchange)
    module(*arguments).backward(dy)  # makes the plans
    torch.cuda.set_sync_debug_mode("error")
    try:
        module(*arguments).backward(dy)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("recipe", ["fp8_row", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("more", [dict(capacity=640), dict(capacity=640, token_capacity=256)])
def test_tokens_that_are_sent_quantized(group, recipe, more):
    """y, dx and dprob have the bits of moe; all have those of moe of the values that are sent."""
    module, (x, indices, probs), dy = make(recipe=recipe, dispatch="quantized", **more)
    weights, sizes = (module.w1, module.w2), [TOKENS]
    sent, dsent = (qt.dequantize(qt.quantize(t, sizes, recipe=recipe, of=of, copies="rowwise"),
                                 sizes) for of, t in (("x", x.detach()), ("dy", dy)))
    sent.requires_grad_()

    def alone(x, indices, probs):
        return qt.moe(x, indices, probs, *weights, recipe=recipe)

    found = step(module, (x, indices, probs), weights, dy)
    for arguments, d, count in (((x, indices, probs), dy, 3), ((sent, indices, probs), dsent, 5)):
        expected = step(alone, arguments, weights, d)
        for name, a, b in list(zip(("y", "dx", "dprob", "dw1", "dw2"), found, expected))[:count]:
            assert torch.equal(a, b), name
    module.check()


def test_an_index_that_is_no_expert(group):
    module, (x, indices, probs), _ = make()
    indices[5, 1] = EXPERTS + 1
    module(x, indices, probs)
    with pytest.raises(RuntimeError, match="rank 0: token 5, k 1: index is 7"):
        module.check()
    module.check()


def test_pairs_beyond_the_capacity(group):
    module, (x, indices, probs), _ = make(capacity=10)
    y = module(x, torch.zeros_like(indices), probs)
    assert y[:3].any() and not y[4:].any()  # three tokens and a choice of the fourth
    with pytest.raises(RuntimeError, match=f"capacity is 10 pairs: rank 0 has {TOKENS * TOPK} for "
                                           "rank 0; the first that does not fit is of expert 0"):
        module.check()
    module.check()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return run("several", GPUS, tmp_path_factory.mktemp("ranks"))


@several
@pytest.mark.parametrize("name", ranks.cuda_cases())
def test_bits_of_one_process(told, name):
    passed(told, name, GPUS)


@several
@pytest.mark.parametrize("name", ["stack", "stack symmetric"])
def test_layers_checkpointed_and_in_microbatches(told, name):
    passed(told, name, GPUS)


@several
@pytest.mark.parametrize("exchange", BOTH)
@pytest.mark.parametrize("name", ranks.GRAPHS)
def test_graphs_of_ranks(told, exchange, name):
    passed(told, f"graph {exchange} {name}", GPUS)


@several
def test_a_rank_that_stalls(tmp_path):
    told = run("stalls", 2, tmp_path)
    assert told[0] == {"stalls": "", "seconds": ""}
