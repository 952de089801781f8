#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Twenty uncompiled kernels, on two cores:  bench/cold.sh [OPTIONS OF quern bench]
# A row for each, and in the last one the time of all by two threads. Small problems, since data are not timed.
problems=()
for op in "fprop RECIPE m=2048" "dgrad RECIPE m=2048" "wgrad RECIPE k=2048" "wgrad RECIPE k=2048 d=f32 beta=1"; do
    for recipe in bf16 fp8_row fp8_block fp8_tensor fp16; do
        sizes="g=8"
        for axis in m n k; do [[ $op == *" $axis="* ]] || sizes+=" $axis=1024"; done
        problems+=("${op/RECIPE/$recipe} $sizes")
    done
done
exec taskset -c 0,1 "${QUERN:-quern}" bench --overhead "${problems[@]}" "$@"
