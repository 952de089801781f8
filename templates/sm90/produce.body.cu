//$ -- SPDX-License-Identifier: Apache-2.0
//$ local k_length = ragged == "k" and "k_length(&t)" or "k"
//$ if dequantize ~= "none" and wide == "either" then
scheduler_twice(&s, &w, &p, &sequence, &maps, cluster, clusters, k, lane);
//$ else
//$ local reader = scheduler_rolled and "" or ", lane"
scheduler_begin(&w, cluster, clusters$(reader));
//$ if microbatches > 1 then
while (uniformly(scheduler_next(&w, &t, lane))) {
    if (elect_lane())
        queue_post(&s, &sequence, &t, &p, 1);
    for (int i = 0; i < microbatch_count; i++) {
        const struct tile share = scheduler_part(&w, &t, i);
        maps.part = i;
        if (elect_lane())
            load_tile(&s, &p, &share, &maps, share_length(&t, &share, i));
        __syncwarp();
    }
}
//$ else
while (uniformly(scheduler_next(&w, &t, lane))) {
//$ if gather ~= "none" and arch == "sm_90a" then
    if (elect_lane())
        queue_post(&s, &sequence, &t, &p, 1);
    __syncwarp();
    gather_tile(&g, &s, &p, &t, &maps, 1, warp, lane);
//$ else
    if (elect_lane()) {
        queue_post(&s, &sequence, &t, &p, 1);
//$ local numbers = quantize == "mainloop" and " &q," or ""
        load_tile(&s, &p,$(numbers) &t, &maps, $(k_length));
//$ if params.extra_k then
        load_extra(&s, &p, &t, &maps, extra_k);
//$ end
    }
    __syncwarp();
//$ end
}
//$ end
//$ end
for (int i = 0; i < TURNS; i++)
    if (elect_lane())
        queue_post(&s, &sequence, &t, &p, 0);
