#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward layers of packed weights from unpermuted tokens: quern's moe lines in W4A16 and in BF16
or FP16, and Humming (PyPI humming-kernels) where it can be imported, in one process, on one GPU.

    python3 bench/packed.py [--recipes w4a16_mxfp4,w4a16_int4] [--shapes 'gptoss*,qwen3']
                            [--tokens 1,16,256] [--rounds N] [--budget SECONDS] [--json FILE]
                            [--commit HASH]

quern's layer has its routing maps, both products, the activation and the sums over k. Humming has
products only: its maps are made before the clock, the activation and the sums are compiled by
torch. Both read the same codes and scales. A time is that of one layer of a CUDA graph of LAYERS
layers, each with experts of its own choice, so that weights of few experts do not stay in L2;
"products" are only quern's MLP, on permuted rows, and the same products of Humming. Results
are compared before: 1 - 2 xy / (xx + yy).
"""

import argparse
import fnmatch
import json
import os
import statistics
import time

import torch

import libquern
from layer import add_rows, distance, gated

SHAPES = [  # name, hidden, ffn, experts, choices
    ("gptoss_20b", 2880, 2880, 32, 4), ("gptoss_120b", 2880, 2880, 128, 4),
    ("qwen3_30b", 2048, 768, 128, 8), ("dsv3_slice", 7168, 2048, 32, 8)]
TOKENS = (1, 4, 16, 64, 256)
LAYERS = 8


class Weights:
    """Codes of four bits and scales of both products, as checkpoints have them."""
    BLOCKS = {"w4a16_mxfp4": 32, "w4a16_int4": 128, "w4a16_int4_fp16": 128}

    def __init__(self, recipe, experts, hidden, ffn):
        self.recipe, self.experts, self.hidden, self.ffn = recipe, experts, hidden, ffn
        self.codes, self.scales = {}, {}
        for name, n, k in (("w1", 2 * ffn, hidden), ("w2", hidden, ffn)):
            self.codes[name] = torch.randint(0, 256, (experts, n, k // 2), dtype=torch.uint8,
                                             device="cuda")
            power = torch.randint(-3, 4, (experts, n, k // self.block), device="cuda")
            power -= round(2 * torch.tensor(k).sqrt().log2().item()) // 2 + 1
            self.scales[name] = (127 + power).to(torch.uint8) if self.mxfp4 else \
                (2.0 ** power).to(torch.float16)

        self.plain = {name: self.values(name) for name in self.codes}

    def values(self, name):
        """In BF16 or FP16, which hold them exactly."""
        table = [0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6] if self.mxfp4 \
            else [*range(8), *range(-8, 0)]
        table = torch.tensor(table, dtype=self.type, device="cuda")
        scales = self.scales[name]
        scales = 2.0 ** (scales.float() - 127) if self.mxfp4 else scales.float()
        return torch.stack([torch.stack((table[(codes & 15).int()], table[(codes >> 4).int()]),
                                        -1).flatten(-2) *
                            scale.to(self.type).repeat_interleave(self.block, -1)
                            for codes, scale in zip(self.codes[name], scales)])

    @property
    def mxfp4(self):
        return self.recipe == "w4a16_mxfp4"

    @property
    def type(self):
        """That of activations."""
        return torch.float16 if self.recipe.endswith("_fp16") else torch.bfloat16

    @property
    def block(self):
        return self.BLOCKS[self.recipe]


class Tokens:
    """x, and LAYERS choices of experts with their probabilities."""

    def __init__(self, count, hidden, experts, topk, type):
        self.x = torch.randn(count, hidden, dtype=type, device="cuda")
        logits = torch.randn(LAYERS, count, experts, device="cuda")
        values, index = logits.topk(topk, -1)
        self.prob, self.index = values.softmax(-1).contiguous(), index.to(torch.int32)
        self.count, self.topk = count, topk


class Quern:
    """A plan of `line` with LAYERS sets of arguments; weights are the packed ones, or BF16."""

    def __init__(self, library, line, given):
        self.plan, self.kept, self.sets = libquern.Plan(library, line), [], []
        for each in given:
            self.plan.unbind()
            self.plan.bind(**{name: t.data_ptr() for name, t in each.items()})
            if self.sets:
                for o in self.plan.operands.values():
                    if not self.plan.args.of[o.arg].data:
                        self.plan.args.of[o.arg].data = self.sets[0].of[o.arg].data
            else:
                self.plan.bind_missing(self.zeros)
            self.sets.append(self.plan.args)

    def zeros(self, size):
        self.kept.append(torch.zeros(size, dtype=torch.uint8, device="cuda"))
        return self.kept[-1].data_ptr()

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream
        for args in self.sets:
            self.plan.args = args
            self.plan.run(stream)

    def close(self):
        self.plan.close()


def line_of(kind, recipe, weights, tokens):
    topk = f"topk={tokens.topk} " if kind == "moe" else "prob=1 "
    rows = tokens.count if kind == "moe" else tokens.count * tokens.topk
    return (f"{kind} {recipe} g={weights.experts} m={rows} {topk}hidden={weights.hidden} "
            f"ffn={weights.ffn} in={'f16' if weights.type == torch.float16 else 'bf16'} grad=0")


def packed_operands(weights):
    found = {}
    for name in ("w1", "w2"):
        found[f"{name}_rowwise"] = weights.codes[name]
        found[f"{name}_rowwise_sf"] = weights.scales[name]
    return found


def quern_layer(library, recipe, weights, tokens, y):
    own = packed_operands(weights) if recipe == weights.recipe else weights.plain
    return Quern(library, line_of("moe", recipe, weights, tokens),
                 [{"x": tokens.x, "y": y, "index": tokens.index[i], "prob": tokens.prob[i], **own}
                  for i in range(LAYERS)])


def quern_products(library, weights, tokens):
    """The MLP on rows in the order of their experts."""
    sets = []
    for i in range(LAYERS):
        order = tokens.index[i].flatten().argsort(stable=True)
        sizes = torch.bincount(tokens.index[i].flatten(), minlength=weights.experts)
        sets.append({"x": tokens.x[order // tokens.topk], "lengths": sizes.to(torch.int32),
                     "prob": tokens.prob[i].flatten()[order].contiguous(),
                     **packed_operands(weights)})
    made = Quern(library, line_of("mlp", weights.recipe, weights, tokens), sets)
    made.kept.append(sets)
    return made


class Humming:
    """Two layers of experts, with maps of LAYERS choices."""

    def __init__(self, weights):
        from humming import tune
        from humming.kernel.humming import HummingKernel
        from humming.layer import HummingLayer
        self.weights, self.tune, self.kernel = weights, tune, HummingKernel
        torch._dynamo.reset()  # it compiles for eight shapes at most
        self.gated, self.add_rows = [torch.compile(f, dynamic=False) for f in (gated, add_rows)]
        self.layers = {}
        kind = {"dtype": "float4e2m1", "scale_dtype": "float8e8m0"} if weights.mxfp4 else \
            {"dtype": "int4"}
        for name, n, k in (("w1", 2 * weights.ffn, weights.hidden),
                           ("w2", weights.hidden, weights.ffn)):
            layer = HummingLayer(shape_n=n, shape_k=k, num_experts=weights.experts,
                                 weight_config={**kind, "group_size": weights.block},
                                 pad_n_to_multiple=128,  # four of its warps
                                 torch_dtype=weights.type).cuda()
            codes = weights.codes[name]
            if not weights.mxfp4:
                codes = codes ^ 0x88  # its codes are 8 more
            scales = weights.scales[name]
            scales = scales.view(torch.float8_e8m0fnu) if weights.mxfp4 else \
                scales.to(weights.type)
            layer.load_from_tensors({"weight": codes.view(torch.int32), "weight_scale": scales})
            layer.transform()
            self.layers[name] = layer

    def config(self, name, rows):
        return self.tune.get_heuristics_config(self.layers[name].humming_config, shape_m=rows,
                                               gemm_type="indexed")

    def compile(self, counts):
        """All kernels that so many rows need, side by side."""
        for name, layer in self.layers.items():
            self.kernel.prepare_kernels(
                layer.humming_config.to_str(), json.dumps({"gemm_type": "indexed"}),
                [(0, 1 << 30, self.config(name, rows)) for rows in counts],
                device=torch.cuda.current_device())

    def begin(self, tokens):
        """Its maps: pairs sorted by expert, each expert's filled up to whole blocks."""
        rows = tokens.count * tokens.topk
        self.tokens, self.maps = tokens, []
        self.order = torch.arange(rows, device="cuda").view(tokens.count, tokens.topk)
        self.configs = {name: self.config(name, rows) for name in self.layers}
        for i in range(LAYERS):
            self.maps.append({name: self.map(tokens.index[i].flatten(), config["block_shape"][0])
                              for name, config in self.configs.items()})
        self.tuned = {name: json.dumps(config) for name, config in self.configs.items()}

    def map(self, experts, block):
        pairs, ids = [], []
        for expert in experts.unique().tolist():
            own = torch.where(experts == expert)[0].to(torch.int32)
            pad = -len(own) % block
            pairs.append(torch.nn.functional.pad(own, (0, pad), value=len(experts)))
            ids += [expert] * ((len(own) + pad) // block)
        pairs = torch.cat(pairs)
        return {"sorted_ids": pairs,
                "expert_ids": torch.tensor(ids, dtype=torch.int32, device="cuda"),
                "num_tokens_padded": torch.tensor(len(pairs), dtype=torch.int32, device="cuda")}

    def product(self, name, i, x, topk):
        return self.layers[name](x, top_k=topk, compute_config='{"gemm_type": "indexed"}',
                                 tuning_config=self.tuned[name], **self.maps[i][name])

    def one(self, i):
        t = self.tokens
        pre = self.product("w1", i, t.x, t.topk)
        return self.product("w2", i, self.gated(pre, t.prob[i].flatten()), 1)

    def products(self):
        for i in range(LAYERS):
            self.one(i)

    def layer(self, i):
        return self.add_rows(self.one(i), self.order)

    def __call__(self):
        for i in range(LAYERS):
            self.layer(i)


def graph_of(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def take_turns(calls, rounds):
    """Microseconds of a layer, the median of the rounds."""
    graphs = {name: graph_of(call) for name, call in calls.items()}
    times = {name: [] for name in calls}
    for turn in range(rounds):
        for name in sorted(graphs, key=lambda name: hash((name, turn))):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graphs[name].replay()
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000 / LAYERS)
    return {name: statistics.median(found) for name, found in times.items()}


def measure(shape, weights, humming, library, options):
    name, hidden, ffn, experts, topk = shape
    rows = []
    for count in options.tokens:
        torch.manual_seed(count)
        tokens = Tokens(count, hidden, experts, topk, weights.type)
        plain = "fp16" if weights.type == torch.float16 else "bf16"
        made = {who: torch.empty_like(tokens.x) for who in ("packed", plain)}
        calls = {"quern": quern_layer(library, weights.recipe, weights, tokens, made["packed"]),
                 "quern products": quern_products(library, weights, tokens),
                 f"quern {plain}": quern_layer(library, plain, weights, tokens, made[plain])}
        plans = list(calls.values())
        for plan in plans:
            plan()
        apart = {plain: distance(made["packed"], made[plain])}
        if humming:
            humming.begin(tokens)
            apart["humming"] = distance(made["packed"], humming.layer(LAYERS - 1))
            calls["humming"], calls["humming products"] = humming, humming.products
        times = take_turns(calls, options.rounds)
        active = sum(len(tokens.index[i].unique()) for i in range(LAYERS)) / LAYERS
        size = sum(t[0].numel() * t.element_size() for t in packed_operands(weights).values())
        row = {"shape": name, "recipe": weights.recipe, "tokens": count, "experts": active,
               "us": times, "gbs": active * size / times["quern"] / 1e3, "distance": apart}
        if humming:
            row["over_humming"] = times["humming"] / times["quern"]
            row["products_over_humming"] = times["humming products"] / times["quern products"]
        rows.append(row)
        print(f"{name} {weights.recipe} {count} tokens, {active:.1f} experts: " +
              ", ".join(f"{who} {us:.1f}" for who, us in times.items()) +
              f" us; {row['gbs']:.0f} GB/s; " +
              " ".join(f"{key} {row[key]:.3f}" for key in row if key.endswith("humming")) + "; " +
              " ".join(f"{who} {e:.1e}" for who, e in apart.items()), flush=True)
        for plan in plans:
            plan.close()
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", default="w4a16_mxfp4,w4a16_int4")
    parser.add_argument("--shapes", default="*")
    parser.add_argument("--tokens", type=lambda text: [int(n) for n in text.split(",")],
                        default=TOKENS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    library = libquern.Library(os.path.join(root, "build/lib/libquern.so"))
    start, rows = time.time(), []
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for shape in SHAPES:
        if not any(fnmatch.fnmatch(shape[0], glob) for glob in options.shapes.split(",")):
            continue
        for recipe in options.recipes.split(","):
            if time.time() - start > options.budget:
                print("# no time is left")
                break
            if any(k % Weights.BLOCKS[recipe] for k in shape[1:3]):
                continue  # Humming wants whole blocks
            weights = Weights(recipe, shape[3], shape[1], shape[2])
            try:
                humming, begin = Humming(weights), time.time()
                humming.compile([count * shape[4] for count in options.tokens])
                print(f"# {shape[0]} {recipe}: Humming compiled for {time.time() - begin:.1f} s")
            except ImportError as error:
                print(f"# {error}")
                humming = None
            rows += measure(shape, weights, humming, library, options)
            del weights, humming
            torch.cuda.empty_cache()
    library.close()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "commit": options.commit, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
