# SPDX-License-Identifier: Apache-2.0
"""The operators as torch sees them: schemas, fake kernels, torch.compile; the library's symbols."""

import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, Case, assert_near
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

import quern
import quern.torch as qt
from quern.torch._ops import NAMES, library
from quern.torch._recipes import scaling_of
from quern.torch.quantized import cast

RECIPES = ("bf16", "fp8_block", "mxfp8", "fp8_row", "fp8_tensor", "nvfp4", "mxfp4")
OPS = torch.ops.quern

# All that the library takes from elsewhere: torch's functions are looked up at load time.
UNDEFINED = """
_Unwind_Resume __gcc_personality_v0 __isoc23_sscanf __isoc99_sscanf __register_atfork
__stack_chk_fail __tls_get_addr calloc dlopen dlsym free malloc memcmp memcpy memset
pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_once
quern_check quern_errmsg quern_open_abi quern_plan_get quern_plan_operands quern_queue_count
quern_queue_create quern_queue_destroy quern_queue_drop quern_queue_flush quern_queue_put quern_run
snprintf strchr strcmp strdup strlen strncmp strstr vsnprintf
""".split()


def names(*options):
    text = subprocess.run(["nm", "-D", *options, quern.find("libquern_torch.so")], check=True,
                          capture_output=True, text=True).stdout
    return {re.sub("@.*", "", line.split()[-1]) for line in text.splitlines() if " w " not in line}


def test_the_documentation_has_every_operator():
    with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
        table = file.read().split("| operators of `torch.ops.quern` | |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(NAMES)


def test_symbols():
    assert names("--undefined-only") <= set(UNDEFINED)
    assert names("--defined-only") == {f"quern_torch_{name}" for name in (
        "check", "error", "load", "queue_count", "queue_create", "queue_destroy", "queue_drop",
        "queue_flush", "replace", "specs")}


def test_without_torch_the_library_says_so():
    load = f"""
import ctypes
load = ctypes.CDLL({quern.find("libquern_torch.so")!r}).quern_torch_load
load.restype = ctypes.c_char_p
print(load().decode())"""
    text = subprocess.run([sys.executable, "-c", load], check=True, capture_output=True, text=True)
    assert text.stdout == "libtorch_cpu.so is not loaded: import torch first\n"


def casts(recipe):
    """Calls of quantize, for a recipe that scales."""
    case = Case([9, 0, 20], n=48, k=80, dtype=torch.float32)
    lengths = case.sizes(dtype=torch.int64)["sizes"]
    for of, t in (("x", case.x), ("dy", case.dy), ("w", case.w)):
        random = torch.tensor([3, 4]) if (recipe, of) == ("nvfp4", "dy") else None
        for copies in ("rowwise", "columnwise", "both"):
            yield (f"quantize {recipe} of={of} in=f32 copies={copies}", 3, *t.shape[-2:], t,
                   None if of == "w" else lengths, None, random, None, None, None)


def products(recipe):
    case = Case([9, 0, 20], n=48, k=80)
    ends = case.sizes("offs")["offs"]
    scaling = scaling_of(recipe)
    x, w, dy = ((t, None, None, t, None, None) if getattr(scaling, of) == 1 else
                cast(t, of, recipe, scaling, "both", None, ends)[0]
                for t, of in ((case.x, "x"), (case.w, "w"), (case.dy, "dy")))
    m, n, k = case.rows, case.n, case.k
    yield f"fprop {recipe}", 3, m, n, k, *x[:3], *w[:3], None, ends, None, None
    yield f"dgrad {recipe} d=f32", 3, m, k, n, *dy[:3], *w[3:], None, ends, None, None
    yield f"wgrad {recipe} d=f32", 3, n, k, m, *dy[3:], *x[3:], None, ends, None, None


def same_layout(real, fake):
    real, fake = ((t,) if isinstance(t, torch.Tensor) else t or () for t in (real, fake))
    return [(t.shape, t.stride(), t.dtype, t.device) for t in real] == \
           [(t.shape, t.stride(), t.dtype, t.device) for t in fake]


def mlps(recipe, keys="bias=1 prob=1"):
    """Calls of the operators of an MLP, each after those that it needs: (name, arguments)."""
    case = Case([9, 0, 20], n=64, k=64, rows=29)
    line, none = f"mlp {recipe} in=bf16 dw=f32 {keys}", None
    w1, w2 = torch.randn(3, 64, 64).bfloat16(), torch.randn(3, 64, 32).bfloat16()
    numbers = dict(line=line, g=3, m=29, hidden=64, ffn=32)
    state = dict(random=torch.ones(6, 2, dtype=torch.int64) if recipe == "nvfp4" else none,
                 scale=none, history=none)
    names = [f"{w}_{copy}{end}" for w in ("w1", "w2") for copy in ("rowwise", "columnwise")
             for end in ("", "_sf", "_global")]
    made = dict.fromkeys(names)
    scaled = recipe != "bf16"
    if scaled:
        six = [cast(w, "w", recipe, scaling_of(recipe), "both")[0] for w in (w1, w2)]
        made = dict(zip(names, (*six[0], *six[1])))
    is_on = {key: f"{key}=1" in keys for key in ("bias", "prob")}
    extra = dict(b1=torch.randn(3, 64) if is_on["bias"] else none,
                 b2=torch.randn(3, 64) if is_on["bias"] else none,
                 prob=torch.rand(29) if is_on["prob"] else none)
    sizes = dict(lengths=case.sizes()["sizes"], ends=none, **state)
    limits = dict(limit=7.0, slope=1.702, shift=1.0)
    weights = dict(w1=none if scaled else w1, w2=none if scaled else w2)
    call = dict(numbers, x=case.x, **weights, **extra, **sizes, **limits,
                **{n: t for n, t in made.items() if "row" in n})
    yield "mlp_forward", call
    yield "mlp_forward_", dict(call, y=torch.zeros(29, 64).bfloat16())
    _, saved = OPS.mlp_forward(**call)
    x = none if scaled else case.x
    call = dict(numbers, dy=case.dy, x=x, **weights, **extra, saved=saved, **sizes, **limits,
                **{**made, **dict.fromkeys(names[6:9])})  # w2_rowwise is for packed weights
    yield "mlp_backward", call
    yield "mlp_backward_", dict(call, saved=saved.clone(), dx=torch.zeros(29, 64).bfloat16())
    pending = OPS.mlp_backward(**call)[-1]
    call = dict(numbers, dy=none if scaled else case.dy, x=x, saved=saved, pending=pending,
                **sizes)
    yield "mlp_wgrad", call
    into = dict(call, line=line + " beta=1", dw1=torch.zeros(3, 64, 64),
                dw2=torch.zeros(3, 64, 32))
    yield "mlp_wgrad_", into
    yield "defer_mlp", dict(into, queue=QUEUE._handle, layer=0)


def layers(recipe, keys="bias=1"):
    """Calls of the operators of a layer from tokens, as mlps."""
    case, none = Case([9, 0, 20], n=64, k=64, rows=29), None
    mlp = dict(list(mlps(recipe, "bias=1 prob=1"))[-8:])["mlp_forward"]
    line = f"moe {recipe} in=bf16 dw=f32 index=i64 residual=1 {keys}"
    numbers = dict(line=line, g=3, m=29, topk=2, hidden=64, ffn=32)
    state = {name: mlp[name] for name in ("random", "scale", "history")}
    extra = {name: mlp[name] for name in ("w1", "w2", "b1", "b2", "limit", "slope", "shift")}
    extra["prob"] = torch.rand(29, 2)
    columns = {f"{w}_columnwise{end}": none for w in ("w1", "w2") for end in ("", "_sf", "_global")}
    rows = {name: mlp[name] for name in mlp if "rowwise" in name}
    if recipe != "bf16":
        made = dict(list(mlps(recipe, "bias=1 prob=1")))["mlp_backward"]
        columns = {name: made[name] for name in columns}
    call = dict(numbers, x=case.x, index=torch.arange(58).reshape(29, 2) % 4, **rows, **extra,
                c=case.dy, **state)
    yield "moe_forward", call
    nowhere = torch.zeros(29, dtype=torch.int64)
    spread = line.replace("residual=1", "scatter=1")
    yield "moe_forward_", dict(call, line=spread, c=none, y_addresses=nowhere)
    _, saved = OPS.moe_forward(**call)
    call = dict(numbers, dy=case.dy, x=case.x, **columns,
                **{name: t if name.startswith("w1") else none for name, t in rows.items()},
                **extra, saved=saved, **state)
    yield "moe_backward", call
    yield "moe_backward_", dict(call, line=spread, dx_addresses=nowhere)
    pending = OPS.moe_backward(**call)[-1]
    call = dict(numbers, saved=saved, pending=pending, **state)
    yield "moe_wgrad", call
    into = dict(call, line=line + " beta=1", dw1=torch.zeros(3, 64, 64), dw2=torch.zeros(3, 64, 32))
    yield "moe_wgrad_", into
    yield "defer_moe", dict(into, queue=QUEUE._handle, layer=0)


QUEUE = qt.WgradQueue(1000)


def others(recipe):
    """Calls of the operators that are neither products, casts nor MLPs: (name, arguments)."""
    case = Case([9, 0, 20], n=48, k=80, rows=29)
    lengths = case.sizes()["sizes"]
    yield "dbias", ("quantize bf16 of=dy copies=rowwise dbias=1", 3, 29, 48, case.dy, lengths,
                    None, None)
    limits, prob = (7.0, 1.702, 1.0), torch.rand(29)
    line = "copies=rowwise activation=swiglu prob=1"
    yield "activate", (f"quantize bf16 of=x {line}", 3, 29, 24, case.dy, lengths, None, prob,
                       *limits)
    yield "activate_backward", (f"quantize bf16 of=dy {line} dprob=1", 3, 29, 48,
                                case.dy[:, :24].contiguous(), lengths, None, case.dy, prob, *limits)
    yield "rescale_", (f"rescale {recipe} of=x", torch.ones(2), torch.ones(1024))
    scale, history = torch.ones(2), torch.zeros(1024)
    yield "quantize", (f"quantize {recipe} of=w in=bf16", 3, 48, 80, case.w, None, None, None,
                       scale, history, None)
    made = OPS.quantize(f"quantize {recipe} of=w in=bf16", 3, 48, 80, case.w, None, None, None,
                        scale, history, None)
    arrays = [torch.zeros_like(t) if t.numel() else None for t in made[:6]]
    yield "quantize_", (f"quantize {recipe} of=w in=bf16", 3, 48, 80, case.w, None, None, None,
                        scale, history, torch.zeros(1, dtype=torch.int32), *arrays)
    yield "product", ("fprop bf16 bias=1 prob=1", 3, 29, 48, 80, case.x, None, None, case.w, None,
                      None, lengths, None, torch.randn(3, 48), torch.rand(29))
    yield "product_lora", ("fprop bf16 lora=8 outside=zero", 3, 20, 48, 80, case.x[:20], None, None,
                           case.w, None, None, torch.tensor([9, 0, 11]), None, None, None,
                           torch.randn(3, 8, 80).bfloat16(), torch.randn(3, 48, 8).bfloat16(),
                           torch.ones(1))
    yield "defer_product", (QUEUE._handle, 0, "wgrad bf16 d=f32 beta=1", 3, 48, 80, 29, case.dy,
                            None, None, case.x, None, None, lengths, None, None, None,
                            torch.zeros(3, 48, 80))
    index = torch.tensor([[0, 2], [1, 0], [2, 1]])
    yield "route", ("route index=i64", 3, 3, 2, index)
    yield "route_starts", ("route index=i64", 3, 3, 2, index)
    inverse, prob = OPS.route("route index=i64", 3, 3, 2, index)[1], torch.rand(3, 2)
    tokens, rows = torch.randn(3, 16).bfloat16(), torch.randn(6, 16).bfloat16()
    at = (3, 2, 16)
    yield "permute", ("permute prob=1", *at, tokens, inverse, prob)
    yield "permute_", ("permute prob=1", *at, tokens, inverse, prob, torch.zeros_like(rows))
    yield "permute_dprob", ("permute prob=1 dprob=1", *at, tokens, inverse, prob, rows)
    yield "combine", ("combine prob=1 residual=1", *at, rows, inverse, prob, tokens)
    yield "combine_backward", ("permute prob=1 dprob=1", *at, tokens, inverse, prob, rows)


def call_of(name, arguments):
    op = getattr(OPS, name).default
    return op, *((arguments, {}) if isinstance(arguments, tuple) else ((), arguments))


def all_calls(recipe):
    yield from (("product", call) for call in products(recipe))
    yield from (("quantize", call) for call in casts(recipe) if recipe != "bf16")
    for keys in ("bias=1 prob=1", "activation=swiglu", "prob=1 recompute=1"):
        yield from mlps(recipe, keys)
    for keys in ("bias=1", "bias=1 prob=x", "bias=1 prob=y recompute=1"):
        yield from layers(recipe, keys)
    yield from others("fp8_tensor_delayed")


@pytest.mark.parametrize("recipe", RECIPES)
def test_fakes_have_the_real_shapes(recipe):
    tried = set()
    for name, arguments in all_calls(recipe):
        op, args, more = call_of(name, arguments)
        mode = FakeTensorMode()

        def fake_of(t):
            return mode.from_tensor(t) if isinstance(t, torch.Tensor) else t

        with mode:
            fake = op(*map(fake_of, args), **{key: fake_of(t) for key, t in more.items()})
        assert same_layout(op(*args, **more), fake), (name, arguments)
        library.quern_torch_queue_drop(QUEUE._handle, -1)  # before its memory is freed
        tried.add(name)
    assert recipe == "bf16" or tried | {"product_", "dequantize"} == set(NAMES)


# Bytes between the parts of `saved` are undefined, and the queue runs nothing: opcheck, which
# compares results, skips those comparisons.
PARTLY = {"moe_forward", "moe_forward_", "moe_backward", "moe_backward_", "defer_moe",
          "mlp_forward", "mlp_forward_", "mlp_backward", "mlp_backward_", "defer_mlp",
          "defer_product"}


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_opcheck(recipe):
    fprop, _, wgrad = products(recipe)
    # Rows after the last expert's are undefined in y; opcheck compares them.
    torch.library.opcheck(OPS.product.default, wgrad)
    torch.library.opcheck(OPS.product.default, fprop, test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(OPS.product_.default, (*wgrad, torch.zeros(3, 48, 80)))
    if recipe != "bf16":
        call = list(casts(recipe))[-1]  # weights, both copies: every byte is written
        torch.library.opcheck(OPS.quantize.default, call)
        made = OPS.quantize(*call)
        scales = [t if t.numel() else None for t in made[:3]]
        back = (f"dequantize {recipe} of=w out=f32 copies=rowwise", *call[1:4], *scales,
                *[None] * 5)
        torch.library.opcheck(OPS.dequantize.default, back)
    for name, arguments in (*mlps(recipe), *layers(recipe), *others("fp8_tensor_delayed")):
        op, args, more = call_of(name, arguments)
        utils = ["test_schema", "test_autograd_registration", "test_faketensor"]
        for each in utils if name in PARTLY else [*utils, "test_aot_dispatch_dynamic"]:
            torch.library.opcheck(op, args, more, test_utils=each)
            library.quern_torch_queue_drop(QUEUE._handle, -1)


def gradients(function, case, recipe):
    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    y = function(x, w, case.sizes()["sizes"], recipe)
    y.backward(case.dy)
    return y.detach()[:case.tokens], x.grad[:case.tokens], w.grad


def layer(x, w, sizes, recipe):
    return qt.grouped_mm(x * 2, w, sizes, recipe=recipe) * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8", "nvfp4"])
def test_compiled_equals_eager(recipe, backend):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for seed, lengths in enumerate(([10, 0, 33, 5], [1, 2, 3, 4], [90, 7, 0, 0])):
        case = Case(lengths, n=48, k=64, seed=seed)
        torch.manual_seed(7)
        eager = gradients(layer, case, recipe)
        torch.manual_seed(7)
        for found, expected in zip(gradients(compiled, case, recipe), eager):
            if recipe == "nvfp4":  # inductor draws other random numbers
                assert found.isfinite().all() and found.shape == expected.shape
            else:
                assert torch.equal(found, expected)


def test_one_graph_for_all_token_counts():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    w = torch.randn(3, 16, 32).to(torch.bfloat16)
    for lengths in ([40, 0, 60], [0, 0, 0], [1, 0, 0], [7, 70, 0]):
        case = Case(lengths, n=16, k=32, rows=sum(lengths) or None)
        x = case.x[:case.tokens]
        torch._dynamo.decorators.mark_unbacked(x, 0)
        y = compiled(x, w, case.sizes()["sizes"], "fp8_block")
        assert_near(y, 4 * case.fprop(case.x, w), 2**-3)
    assert counter.frame_count == 1


@pytest.mark.parametrize("recipe", ["mxfp8", "mxfp4", "fp8_block"])
def test_flushed_denormals_change_no_cast(recipe):
    """PyTorch's threads may take denormals for zero, in which small blocks and scales are."""
    x = torch.randn(12, 64) * 2.0**torch.arange(-146, 110, 4).float()
    scaling, sizes = scaling_of(recipe), torch.tensor([12])
    expected = cast(x, "x", recipe, scaling, "both", sizes)[0]
    assert torch.set_flush_denormal(True)
    try:
        found = cast(x, "x", recipe, scaling, "both", sizes)[0]
        flushed = float(torch.tensor(2.0**-140) * 2) == 0
    finally:
        torch.set_flush_denormal(False)
    assert flushed
    for a, b in zip(found, expected):
        assert (a is None and b is None) or torch.equal(a, b)
