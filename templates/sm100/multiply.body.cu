//$ -- SPDX-License-Identifier: Apache-2.0
//$ local k_length = ragged == "k" and "k_length(&t)" or params.extra_k and "all_k" or "k"
while (uniformly(queue_read(&s, &sequence, &t, &p, lane))) {
    const unsigned int number = sequence - 1;

    if ($(pair and "cluster_rank() == 0 && " or "")elect_lane()) {
        sums_wait_empty(&s, number);
//$ local where = "sums_of(sums, number)" .. (scales == "native" and ", sums" or "")
        multiply_tile($(where), &s, &p, &t, $(k_length));
        sums_post(&s, number);
//$ if gather ~= "none" and pair then
    } else if (cluster_rank() == 1 && elect_lane()) {
        forward_tile(&s, &p, $(k_length));
//$ end
    }
    __syncwarp();
}
