// The failure tolerance: how many services may be lost while every observer keeps a slot.

export const ABLE = ["active", "standby"];

/** How many of the largest active services each pool could lose and still hold what is wanted; the worst pool counts. */
export function spare(pools, services) {
  const of = (pool) => {
    const sizes = services.filter((it) => it.pool === pool.name && ABLE.includes(it.state)).map((it) => it.capacity).sort((a, b) => b - a);
    const wanted = ["Created", "Processing", "OnDeleting"].reduce((sum, it) => sum + (pool.observers[it] ?? 0), 0);
    // Any of the other services of a single pool may become the active one.
    if (pool.single) return { pool: pool.name, lost: sizes.every((it) => it >= wanted) ? Math.max(sizes.length - 1, 0) : 0, wanted, of: sizes.length };
    let room = sizes.reduce((sum, it) => sum + it, 0), lost = 0;
    while (lost < sizes.length - 1 && room - sizes[lost] >= wanted) room -= sizes[lost++];
    return { pool: pool.name, lost, wanted, of: sizes.length };
  };
  // A paused pool is listed even if no service and no observer belongs to it; such a pool does not count.
  return pools.filter((it) => it.services > 0 || it.needed > 0).map(of).sort((a, b) => a.lost - b.lost)[0] ?? null;
}
