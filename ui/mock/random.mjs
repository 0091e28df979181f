/** A seeded generator (mulberry32), so that the mock shows the same network every time. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export function hex16(random) {
  const half = () =>
    Math.floor(random() * 4294967296)
      .toString(16)
      .padStart(8, '0');
  return half() + half();
}
