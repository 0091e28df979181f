// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sampling: which packets of a watchlist entry are measured, if only one of `sample` is to be. What is not measured is as if it were not
// watched; drops are reported in any case.

#ifndef SAMPLING_P4
#define SAMPLING_P4

/// At a source. Each sampler counts down to its next packet. How many packets it skips is a different number each time, from 0 to
/// 2 * (sample - 1): a hash of the packets measured before, so that the same packets always lead to the same reports.
///
/// The control plane gives each entry that samples its own sampler. One that had another entry before goes on from its state, and waits for
/// no more packets than the new share allows.
control CountDown(inout local_t local) {
    @name("sampler_skip") register<bit<32>>(SAMPLERS) skips;
    @name("sampler_measured") register<bit<32>>(SAMPLERS) measured;

    apply {
        bit<32> place = (bit<32>)local.watch.sampler;
        bit<64> most = ((bit<64>)local.watch.sample - 1) << 1;
        bit<32> skip;
        skips.read(skip, place);
        if ((bit<64>)skip > most) { skip = (bit<32>)most; }
        if (skip > 0) {
            skips.write(place, skip - 1);
            local.watch.mode = WATCH_NOTHING;
        } else {
            bit<32> number;
            measured.read(number, place);
            hash(skip, HashAlgorithm.crc32, 32w0, { number }, most + 1);
            skips.write(place, skip);
            measured.write(place, number + 1);
        }
    }
}

#endif
