# SPDX-License-Identifier: Apache-2.0
"""Each wrong argument gets an exception that names it and the rule; none of them keeps memory."""

import pytest
import torch
from conftest import Case, shifted, uses

import quern.torch as qt

CASE = Case([3, 5], n=16, k=32)
X, W, SIZES = CASE.x, CASE.w, CASE.sizes()["sizes"]

WRONG = [
    ((X, W), {}, ValueError, "sizes, offs: exactly one of them"),
    ((X, W, SIZES), {"offs": SIZES}, ValueError, "sizes, offs: exactly one of them"),
    ((X, W, "35"), {}, TypeError, "sizes is str: a tensor or a list is expected"),
    ((X, W, [3, 50]), {}, ValueError, "sizes: the experts have 53 rows, and the values 15"),
    ((X, W, [-3, 5]), {}, ValueError, r"sizes\[0\] is -3: an integer from 0"),
    ((X, W, [3, 5.0]), {}, TypeError, r"sizes\[1\] is float: an integer from 0"),
    ((X, W, [True, 5]), {}, TypeError, r"sizes\[0\] is bool: an integer from 0"),
    ((X, W, [2**70, 5]), {}, ValueError, r"sizes\[0\] is 118.*: an integer from 0"),
    ((X, W, SIZES.float()), {}, TypeError, "sizes is torch.float32: torch.int32 or torch.int64"),
    ((X, W, SIZES[:1]), {}, ValueError, r"sizes has the shape \[1\]: \[2\] is expected"),
    ((X, W, SIZES.to("meta")), {}, ValueError, "sizes is on meta and the values on"),
    ((None, W, SIZES), {}, TypeError, "x is NoneType: a tensor is expected"),
    ((X, None, SIZES), {}, TypeError, "w is NoneType: a tensor is expected"),
    ((X.to_sparse(), W, SIZES), {}, TypeError, "x is torch.sparse_coo: a dense tensor is expected"),
    ((X, W.to_sparse(), SIZES), {}, TypeError, "w is torch.sparse_coo: a dense tensor is expected"),
    ((torch.nested.nested_tensor([X, X], layout=torch.jagged), W, SIZES), {}, TypeError,
     "x is nested: a dense tensor is expected"),
    ((X.float(), W, SIZES), {}, TypeError, "x is torch.float32: torch.bfloat16 is expected"),
    ((X, W[0], SIZES), {}, ValueError, "w has 2 axes: 3 are expected"),
    ((X[:, :16], W, SIZES), {}, ValueError, r"x has the shape \[15, 16\] and w .*: their last"),
    ((X, W.to("meta"), SIZES), {}, ValueError, "w is on meta and the values on"),
    ((X, W, SIZES), {"out_dtype": torch.int8}, TypeError, "out_dtype is torch.int8: bfloat16"),
    ((X, W, SIZES), {"recipe": "bf17"}, RuntimeError, "did you mean 'bf16'"),
    ((X, W, SIZES), {"out_dtype": torch.float16}, RuntimeError, "d=f16: recipe bf16 writes bf16"),
    ((X, W, SIZES), {"recipe": "fp8_tensor_delayed"}, ValueError, "use GroupedLinear"),
    ((X, W, SIZES), {"recipe": None}, TypeError, "recipe is NoneType: a name such as 'bf16'"),
    ((X, W, SIZES), {"recipe": ["bf16"]}, TypeError, "recipe is list: a name such as 'bf16'"),
    *[((X, W, SIZES), {"recipe": recipe}, ValueError, "recipe is '.*': a name such as 'bf16'")
      for recipe in ("bf16 d=f32", "bf16\0x", "\ud800", "")],
    ((X, W, SIZES), {"lora_scaling": "x"}, TypeError, "lora_scaling is str: a number or a tensor"),
    ((X, W, SIZES), {"lora_scaling": 10**400}, ValueError, "lora_scaling exceeds the range"),
    ((X, W, SIZES), {"queue": "a"}, TypeError, "queue is str: a WgradQueue is expected"),
    *[((X, W, SIZES), {"layer": layer}, kind, f"layer is {told}: an integer from 0 to 2147483647")
      for layer, kind, told in (("a", TypeError, "str"), (1.5, TypeError, "float"),
                                (-1, ValueError, "-1"), (2**31, ValueError, "2147483648"))],
    ((X, W, SIZES), {"out": torch._neg_view(torch.empty(15, 16).bfloat16())}, ValueError,
     "out is a negative view"),
    ((X, W, SIZES), {"main_grad": torch._neg_view(torch.empty(2, 16, 32))}, ValueError,
     "main_grad is a negative view"),
    ((X, W, SIZES), {"prob": torch.ones(15)}, ValueError, "prob: it multiplies the bias"),
    ((X, W, SIZES), {"bias": torch.ones(2, 15)}, ValueError,
     r"bias has the shape \[2, 15\]: \[2, 16\] is expected"),
    ((X, W, SIZES), {"bias": torch.ones(2, 16).int()}, TypeError, "bias is torch.int32"),
    ((X, W, SIZES), {"bias": torch.ones(2, 16), "prob": torch.ones(8)}, ValueError,
     r"prob has the shape \[8\]: \[15\] is expected"),
    ((X, W, SIZES), {"bias": torch.ones(2, 16), "prob": [1.0] * 15}, TypeError,
     "prob is list: a tensor is expected"),
    ((X, W, SIZES), {"outside": "one"}, ValueError, "outside is 'one': None or 'zero'"),
    ((X, W, SIZES), {"out": torch.empty(8, 16).bfloat16()}, ValueError,
     r"out has the shape \[8, 16\]: \[15, 16\] is expected"),
    ((X, W, SIZES), {"out": torch.empty(16, 15).bfloat16().T}, ValueError, "out is not contig"),
    ((X, W, SIZES), {"out": torch.empty(15, 16).bfloat16().requires_grad_()}, ValueError,
     "out requires a gradient"),
    ((X, W, SIZES), {"out": shifted(torch.empty(15, 16).bfloat16())}, ValueError,
     "out begins at 0x.*: a multiple of 16 is expected"),
    ((X, W, SIZES), {"main_grad": shifted(torch.empty(2, 16, 32))}, ValueError,
     "main_grad begins at 0x.*: a multiple of 16 is expected"),
    ((X, W, SIZES), {"out": 1}, TypeError, "out is int: a tensor is expected"),
    ((X, W, SIZES), {"dgrad_out": torch.empty(15, 32)}, ValueError,
     "dgrad_out is torch.float32: torch.bfloat16 is expected"),
    ((X, W, SIZES), {"dgrad_out": X.detach()}, ValueError, "dgrad_out shares memory with x"),
    ((X, W, SIZES), {"main_grad": torch.empty(2, 16, 32).half()}, ValueError,
     "main_grad is torch.float16: torch.bfloat16 or torch.float32 is expected"),
    ((X, W, SIZES), {"main_grad": torch.empty(2, 32, 16)}, ValueError, "main_grad has the shape"),
    ((X, qt.quantize(W, recipe="mxfp8", of="w"), SIZES), {}, ValueError,
     "w is quantized as of=w of recipe mxfp8: of=w of bf16 is expected"),
]


@pytest.mark.parametrize("args, more, kind, sentence", WRONG)
def test_grouped_mm(args, more, kind, sentence):
    with pytest.raises(kind, match=sentence):
        qt.grouped_mm(*args, **more)


@pytest.mark.parametrize("args, more, kind, sentence", [
    ((X,), {"of": "x"}, ValueError, "sizes, offs: exactly one of them"),
    ((X, SIZES), {"of": "y"}, ValueError, "of is 'y': 'x', 'w' or 'dy' is expected"),
    ((W, SIZES), {"of": "w"}, ValueError, "sizes, offs: weights take none"),
    ((X, SIZES), {"copies": "all"}, ValueError, "copies is 'all': 'rowwise', 'columnwise' or"),
    ((W, SIZES), {}, ValueError, "values has 3 axes: 2 are expected"),
    ((X, SIZES), {"state": (1, 2)}, ValueError, "state: recipe mxfp8 has no delayed scaling"),
    ((X, SIZES), {"recipe": "fp8_tensor_delayed", "state": (X,)}, TypeError, "state: a pair of"),
    ((X, SIZES), {"recipe": "fp8_tensor_delayed", "state": (1, 2)}, TypeError,
     "state.scale is int: a tensor is expected"),
    ((X, SIZES), {"recipe": "fp8_tensor_delayed", "state": (torch.ones(2), torch.ones(3))},
     ValueError, r"state.history has the shape \[3\]"),
])
def test_quantize(args, more, kind, sentence):
    with pytest.raises(kind, match=sentence):
        qt.quantize(*args, **({"recipe": "mxfp8"} | more))


def test_dequantize():
    packed = qt.quantize(W, recipe="mxfp8", of="w")
    with pytest.raises(ValueError, match="copies is 'both': 'rowwise' or 'columnwise' is expected"):
        qt.dequantize(packed, copies="both")


def product(line="fprop bf16", g=2, m=None, a=X, b=W, lengths=SIZES, ends=None, a_sf=None):
    m = X.shape[0] if m is None else m
    return torch.ops.quern.product(line, g, m, 16, 32, a, a_sf, None, b, None, None, lengths, ends,
                                   None, None)


# The operator itself, whose sentences have the names of operands.
WRONG_CALLS = [
    ({"line": "fprup bf16"}, "op 'fprup' is unknown; did you mean 'fprop'"),
    ({"line": "fprop bf16 x=1"}, "'x' is unknown; known: g="),
    ({"line": "fprop bf16 " + "x" * 300}, "'xxxx.*' has no value"),
    ({"g": 3}, r"lengths has the shape \[2\]: \[3\] is expected"),
    ({"m": 14}, r"a has the shape \[15, 32\]: \[14, 32\] is expected"),
    ({"m": -5}, "m=-5: a whole number"),
    ({"a": X.float()}, "a is f32: bf16 is expected"),
    ({"a": X.flatten()}, r"a has the shape \[480\]: \[15, 32\] is expected"),
    ({"a": X.T.contiguous().T}, "a is not contiguous along its last axis"),
    ({"lengths": SIZES.short()}, "lengths is another type: i32 or i64 is expected"),
    ({"lengths": torch.arange(4, dtype=torch.int32)[::2]}, "lengths is not contiguous"),
    ({"lengths": None}, "the groups have no sizes"),
    ({"ends": SIZES}, "ends and lengths are both given"),
    ({"a_sf": X}, "a_sf is given: 'fprop bf16 .*' has no such operand"),
]


@pytest.mark.parametrize("change, sentence", WRONG_CALLS)
def test_product(change, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        product(**change)


def test_addresses_of_operators():
    """Slices that are only read are copied; a result must begin at a multiple of 16 bytes."""
    expected = product()
    tokens = int(SIZES.sum())
    assert torch.equal(product(a=shifted(X))[:tokens], expected[:tokens])
    with pytest.raises(RuntimeError, match="d is 0x.*: it must be a multiple of 16"):
        torch.ops.quern.product_("fprop bf16 d=bf16", 2, 15, 16, 32, X, None, None, W, None, None,
                                 SIZES, None, None, None, shifted(expected))


@pytest.mark.parametrize("argument, value", [
    ("tp_size", 2), ("sequence_parallel", True), ("ub_overlap_rs", True), ("ub_overlap_ag", True),
    ("ub_name", "fc1")])
def test_communication_of_grouped_linear(argument, value):
    with pytest.raises(ValueError, match=f"{argument} is not supported: communicate around"):
        qt.GroupedLinear(2, 16, 16, **{argument: value})


@pytest.mark.parametrize("more, kind, sentence", [
    ({"num_gemms": 0}, ValueError, "num_gemms is 0: an integer from 1 to 1024"),
    ({"num_gemms": 1025}, ValueError, "num_gemms is 1025: an integer from 1 to 1024"),
    ({"in_features": 1.5}, TypeError, "in_features is float: an integer from 1"),
    ({"bias": "no"}, TypeError, "bias is str: True or False is expected"),
    ({"scale_bias": 2}, TypeError, "scale_bias is 2: True or False is expected"),
    ({"outside": "x"}, ValueError, "outside is 'x': None or 'zero' is expected"),
    ({"layer": "a"}, TypeError, "layer is str: an integer from 0"),
    ({"recipe": "bf16 d=f32"}, ValueError, "recipe is 'bf16 d=f32': a name such as"),
    ({"params_dtype": torch.int8}, TypeError, "params_dtype is torch.int8"),
    ({"parallel_mode": "rows"}, ValueError, "parallel_mode is 'rows': None, 'column' or 'row'"),
    ({"recipe": "fp9"}, RuntimeError, "recipe 'fp9' is unknown"),
    ({"wgrad_queue": 1}, ValueError, "wgrad_queue: it needs delay_wgrad_compute=True"),
])
def test_arguments_of_grouped_linear(more, kind, sentence):
    given = {"num_gemms": 2, "in_features": 16, "out_features": 16} | more
    with pytest.raises(kind, match=sentence):
        qt.GroupedLinear(**given)


@pytest.mark.parametrize("args, kind, sentence", [
    ((torch.ones(4, 15).bfloat16(), [2, 2]), ValueError, "inp: .* in_features = 16"),
    ((torch.ones(4, 16), [2, 2]), TypeError, "x is torch.float32: torch.bfloat16 is expected"),
    ((torch.ones(4, 16).bfloat16(), [2, 2, 0]), ValueError, r"m_splits has the shape \[3\]: \[2\]"),
    ((torch.ones(4, 16).bfloat16(), [2, 3]), ValueError, "m_splits: the experts have 5 rows"),
    ((torch.ones(4, 16).bfloat16(), None), ValueError, "m_splits, offs: exactly one"),
    ((torch.ones(4, 16).bfloat16(), [2, 2], "no"), TypeError, "is_first_microbatch is str: True"),
    ((torch.ones(4, 16).bfloat16(), [2, 2], torch.ones(2)), ValueError,
     r"is_first_microbatch has the shape \[2\]: \[1\] is expected"),
])
def test_inputs_of_grouped_linear(args, kind, sentence):
    with pytest.raises(kind, match=sentence):
        qt.GroupedLinear(2, 16, 16, params_dtype=torch.bfloat16)(*args)


@pytest.mark.parametrize("call, kind, sentence", [
    (lambda: qt.why(3), TypeError, "line is int: a line such as"),
    (lambda: qt.why("fprop bf16\0x"), ValueError, "line is .*: ASCII without zero bytes"),
    (lambda: qt.tune(5), TypeError, "line is int: a line such as"),
    (lambda: qt.tune("fprop bf16", "a"), TypeError, "seconds is str: a number is expected"),
    *[(lambda device=device: qt.check(device), ValueError, f"device is {device!r}: 'cpu' or a CUDA")
      for device in ("meta", "foo", 99, 1.5)],
    (lambda: qt.add_specs(None), TypeError, "folder is NoneType: a path is expected"),
    (lambda: qt.pack(None), TypeError, "source is NoneType: a path is expected"),
    (lambda: qt.pack("model", 3), TypeError, "to is int: a path is expected"),
    (lambda: qt.pack("model", recipe=3), TypeError, "recipe is int: text is expected"),
    (lambda: qt.load_packed(None), TypeError, "path is NoneType: a path is expected"),
    (lambda: qt.unpack("packed", None), TypeError, "folder is NoneType: a path is expected"),
    (lambda: qt.Activation("swiglu")(X[:, :5]), ValueError, r"x has the shape \[15, 5\]: .* 2 is"),
    (lambda: qt.Activation("swiglu", interleave=4)(X[:, :12]), ValueError, "a multiple of 8 is"),
    (lambda: qt.GroupedMLP(2, 16, 16, limit="7"), TypeError, "limit is str: a number is expected"),
    (lambda: qt.GroupedMLP(2, 16, 16)(X[:, :16], SIZES, None, "no"), TypeError,
     "is_first_microbatch is str"),
])
def test_other_functions(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()


def test_integers_of_numpy():
    numpy = pytest.importorskip("numpy")
    sizes = [numpy.int64(3), torch.tensor(5)]
    assert torch.equal(qt.grouped_mm(X, W, sizes)[:8], qt.grouped_mm(X, W, SIZES)[:8])
    assert qt.GroupedLinear(numpy.int64(2), 16, 16, bias=numpy.False_).num_gemms == 2


def test_errors_keep_nothing():
    tensors = X, W, SIZES
    before = [uses(t) for t in tensors]
    for i in range(1000):
        with pytest.raises(RuntimeError):
            product(**WRONG_CALLS[i % len(WRONG_CALLS)][0])
    assert [uses(t) for t in tensors] == before
    product()
    assert [uses(t) for t in tensors] == before
