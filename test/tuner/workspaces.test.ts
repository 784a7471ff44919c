import { describe, expect, it } from 'vitest';
import { constraints, found, type Job, MIB, search } from './machine.js';
import { searchedJobs } from './searched.js';

const BUDGET = 4096 * MIB;
const CONTEXT = 740 * MIB;
const RESIDENT = 60 * MIB;
const PER_SAMPLE = 2.05 * MIB;
/** Largest size for which the network itself, with the least of workspaces, leaves room. */
const LARGEST = Math.floor((BUDGET - CONTEXT - RESIDENT - 64 * MIB) / PER_SAMPLE);

/**
 * What DCGAN showed on an H200 under 4 GiB: its library tries all algorithms for each new shape (`cudnn.benchmark`), with workspaces
 * that differ from size to size by gigabytes and are never more than what is left, so that the peak is no line.
 */
const dcgan: Job = {
  run: ({ micro_batch: size }, warm) => {
    if (size > (warm ? 0.99 : 1) * LARGEST) return { outcome: 'device_oom' };
    const network = RESIDENT + PER_SAMPLE * size;
    const wanted = size < 100 ? 2400 * MIB : size % 3 === 2 ? 1500 * MIB : size % 3 === 1 ? 700 * MIB : 64 * MIB;
    const active = Math.min(network + wanted, BUDGET - CONTEXT - 24 * MIB);
    return {
      outcome: 'fit',
      step_s: 0.00015 * size,
      peaks: {
        total_bytes: active + CONTEXT + 20 * MIB,
        forward_backward_bytes: active,
        optimizer_bytes: RESIDENT,
        reserved_bytes: active + 20 * MIB,
        resident_bytes: RESIDENT,
        needed_bytes: network,
      },
    };
  },
};

describe('workspaces that shrink to what is left', () => {
  it.each(['possible', 'on'] as const)(
    'do not end a search before a size has failed (segments that can grow: %s)',
    (expandable) => {
      const s = search(dcgan, constraints({ budgetBytes: BUDGET, expandable }));
      const { max_micro_batch: max } = found(s);
      expect(max).toBeLessThanOrEqual(LARGEST);
      expect(max).toBeGreaterThanOrEqual(0.97 * LARGEST);
      expect(s.oomLaunches).toBeLessThanOrEqual(1);
      expect(s.launches).toBe(2);
    },
  );
});

/** A discriminator's convolutions under 3 GiB of an H200: 11 MiB a sample as fast as they can, 2.6 MiB where no more is left. */
const gan = (flexible: boolean): Job => ({
  run: ({ micro_batch: size }) => {
    const least = RESIDENT + 2.6 * MIB * size;
    if (least > BUDGET - CONTEXT - 24 * MIB) return { outcome: 'device_oom' };
    const active = Math.min(RESIDENT + 11 * MIB * size, BUDGET - CONTEXT - 24 * MIB);
    return {
      outcome: 'fit',
      step_s: 0.00015 * size,
      flexible_workspaces: flexible,
      // Full to the brim, the cache is given back in every step, for ever.
      ...(RESIDENT + 11 * MIB * size > active ? { alloc_retries: 3, restless: true, workspaces_refused: true } : {}),
      peaks: {
        total_bytes: active + CONTEXT + 20 * MIB,
        forward_backward_bytes: active,
        optimizer_bytes: RESIDENT,
        reserved_bytes: active + 20 * MIB,
        resident_bytes: RESIDENT,
        ...(flexible ? { needed_bytes: least } : {}),
      },
    };
  },
});

describe('workspaces that grow with the size, in a line', () => {
  const largest = Math.floor((BUDGET - CONTEXT - 24 * MIB - RESIDENT) / (2.6 * MIB));

  it.each(['possible', 'on'] as const)('are no limit where a library does with less (segments: %s)', (expandable) => {
    const s = search(gan(true), constraints({ budgetBytes: BUDGET, expandable }));
    const answer = found(s);
    expect(answer.max_micro_batch).toBeLessThanOrEqual(largest);
    expect(answer.max_micro_batch).toBeGreaterThanOrEqual(0.975 * largest);
    expect(s.launches).toBeLessThanOrEqual(6);
  });

  it('are not taken for weights that fill the budget', () => {
    const { notes } = found(search(gan(true), constraints({ budgetBytes: BUDGET, expandable: 'possible' })));
    expect(notes.join(' ')).not.toContain('No size leaves the headroom');
  });

  it.each(searchedJobs())('are asked for by one size, in the process that proved the line right: $name', (job) => {
    const flexible: Job = { run: (...asked) => ({ ...job.run(...asked), flexible_workspaces: true }) };
    const s = search(flexible, constraints({ budgetBytes: job.budgetBytes, expandable: 'possible' }));
    expect(s.launches).toBe(2);
    expect(s.oomLaunches).toBe(1);
  });

  it('are asked for by one size, too, where a far larger one has failed before the line was known', () => {
    // ViT-MAE in Trainer under 8 GiB of an H100: one and four samples foretold three times what fits.
    const mae: Job = {
      run: ({ micro_batch: size }) => {
        const total = (size < 10 ? 2516 + 14 * size : 2088 + 86 * size) * MIB;
        if (total > 8192 * MIB) return { outcome: 'device_oom' };
        return {
          outcome: 'fit',
          flexible_workspaces: true,
          peaks: {
            total_bytes: total,
            forward_backward_bytes: total - CONTEXT,
            optimizer_bytes: 1600 * MIB,
            reserved_bytes: total - CONTEXT,
            resident_bytes: 1200 * MIB,
          },
        };
      },
    };
    const s = search(mae, constraints({ budgetBytes: 8192 * MIB, expandable: 'possible' }));
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(69);
    expect(s.probes.filter(({ micro_batch: size }) => size > 70).length).toBeLessThanOrEqual(2);
    expect(s.oomLaunches).toBeLessThanOrEqual(2);
  });

  it('are no limit only where they were refused: what is allocated by then leaves the next process no room', () => {
    const full: Job = {
      run: (probe) => ({ ...gan(true).run(probe, false), workspaces_refused: false }),
    };
    const s = search(full, constraints({ budgetBytes: BUDGET, expandable: 'possible' }));
    const line = (BUDGET - CONTEXT - 24 * MIB - RESIDENT) / (11 * MIB);
    expect(found(s).max_micro_batch).toBeLessThanOrEqual(line);
    expect(found(s).max_micro_batch).toBeGreaterThanOrEqual(0.97 * line);
  });

  it('are one by their line where none is known to: there it is proof', () => {
    const { max_micro_batch: max } = found(search(gan(false), constraints({ budgetBytes: BUDGET, expandable: 'on' })));
    expect(max).toBeLessThan(0.5 * largest);
  });
});

/**
 * Two of PyTorch-GAN under 3 GiB of a GPU: up to `full` samples a convolution has the workspace that it asks for, a little more and it is
 * refused. From `slow` on the cache is given back in every step, which is slower (acgan; dcgan is not seen to).
 */
const cliff = (slow: number, full: number): Job => ({
  run: ({ micro_batch: size }) => {
    const budget = 3072 * MIB;
    if (CONTEXT + 2 * MIB * size > budget - 24 * MIB) return { outcome: 'device_oom' };
    const refused = size > full + 3;
    const total = refused ? CONTEXT + 2 * MIB * size : Math.min((772 + 8.53 * size) * MIB, budget - 4 * MIB);
    const free = size >= full ? 10 : 80;
    return {
      outcome: 'fit',
      step_s: 0.00017 * size * (size >= slow && !refused ? 2 : 1),
      flexible_workspaces: true,
      ...(size >= slow && !refused ? { alloc_retries: 7 } : {}),
      ...(size >= full && !refused ? { restless: true } : {}),
      ...(refused ? { workspaces_refused: true } : {}),
      peaks: {
        total_bytes: total,
        forward_backward_bytes: total - CONTEXT - free * MIB,
        optimizer_bytes: RESIDENT,
        reserved_bytes: total - CONTEXT,
        resident_bytes: RESIDENT,
        needed_bytes: 2 * MIB * size,
      },
    };
  },
});

it.each([
  ['and the one before it is as fast as any', 272, 274],
  ['and the one before it gives back its cache, too', 270, 276],
])('a size that fills the budget is no end where a larger one is refused its workspace: %s', (_, slow, full) => {
  const largest = Math.floor((3072 * MIB - 24 * MIB - CONTEXT) / (2 * MIB));
  const { max_micro_batch: max } = found(
    search(cliff(slow, full), constraints({ budgetBytes: 3072 * MIB, expandable: 'possible' })),
  );
  expect(max).toBeLessThanOrEqual(largest);
  expect(max).toBeGreaterThanOrEqual(0.98 * largest);
});

/**
 * acgan of PyTorch-GAN under 3 GiB of an H100: its library tries workspaces that fill the budget from a quarter of what fits on, so that no peak tells the limit.
 */
const hidden: Job = {
  run: ({ micro_batch: size }) => {
    const budget = 3072 * MIB;
    const needed = RESIDENT + 1.96 * MIB * size;
    if (CONTEXT + needed > budget - 24 * MIB) return { outcome: 'device_oom' };
    const wanted = (780 + 8.6 * size) * MIB;
    const refused = size > 280;
    const total = Math.min(wanted, budget - 6 * MIB);
    return {
      outcome: 'fit',
      step_s: 0.0002 * size,
      flexible_workspaces: true,
      ...(wanted > total ? { alloc_retries: 3 } : {}),
      ...(wanted > total && !refused ? { restless: true } : {}),
      ...(refused ? { workspaces_refused: true } : {}),
      peaks: {
        total_bytes: total,
        forward_backward_bytes: refused || size < 10 ? needed : total - CONTEXT - 10 * MIB,
        optimizer_bytes: RESIDENT,
        reserved_bytes: total - CONTEXT,
        resident_bytes: RESIDENT,
        needed_bytes: needed,
      },
    };
  },
};

it('a limit that no peak tells is found in few processes', () => {
  const largest = Math.floor((3072 * MIB - 24 * MIB - CONTEXT - RESIDENT) / (1.96 * MIB));
  const s = search(hidden, constraints({ budgetBytes: 3072 * MIB, expandable: 'possible' }), false, 400, true);
  const { max_micro_batch: max } = found(s);
  expect(max).toBeLessThanOrEqual(largest);
  expect(max).toBeGreaterThanOrEqual(0.975 * largest);
  expect(s.observations.at(-1)?.life).toBeLessThanOrEqual(4);
});

/** Like wgan of PyTorch-GAN, perceptrons: much of what they hold lies in pieces, which are given back in each step where memory is short, and more in a process that has run other sizes. */
const perceptrons: Job = {
  run: ({ micro_batch: size }, warm) => {
    const budget = 2048 * MIB;
    const active = RESIDENT + 0.028 * MIB * size;
    if (CONTEXT + (warm ? 1.2 : 1) * active > budget - 80 * MIB) return { outcome: 'device_oom' };
    const held = 1.6 * active;
    const reserved = Math.min(held, budget - CONTEXT - 8 * MIB);
    return {
      outcome: 'fit',
      step_s: 0.00001 * size,
      ...(held > reserved ? { alloc_retries: 3, restless: true } : {}),
      peaks: {
        total_bytes: CONTEXT + reserved,
        forward_backward_bytes: active,
        optimizer_bytes: RESIDENT,
        reserved_bytes: reserved,
        resident_bytes: RESIDENT,
      },
    };
  },
};

it('where only pieces are given back, each process goes twice as far above the last as that one did', () => {
  const largest = Math.floor((2048 * MIB - 80 * MIB - CONTEXT - RESIDENT) / (0.028 * MIB));
  const s = search(perceptrons, constraints({ budgetBytes: 2048 * MIB, expandable: 'possible' }), false, 400, true);
  const { max_micro_batch: max } = found(s);
  expect(max).toBeLessThanOrEqual(largest);
  expect(max).toBeGreaterThanOrEqual(0.98 * largest);
  expect(s.observations.at(-1)?.life).toBeLessThanOrEqual(15);
});

/** timm's ResNet-18 under 8 GiB of an H100: 179 samples take less than 175, as a library has less workspace for them. */
const falls: Job = {
  run: ({ micro_batch: size }) => {
    const budget = 8192 * MIB;
    const needed = (3090 + 15.7 * size) * MIB;
    if (needed > budget) return { outcome: 'device_oom' };
    const full = size > 177;
    const total = full ? needed + 770 * MIB : (3070 + 28.6 * size) * MIB;
    const tight = total > 0.97 * budget;
    return {
      outcome: 'fit',
      step_s: 0.0005 * size,
      flexible_workspaces: true,
      ...(tight ? { alloc_retries: 3 } : {}),
      ...(full ? { workspaces_refused: true } : {}),
      peaks: {
        total_bytes: Math.min(total, budget - 6 * MIB),
        forward_backward_bytes: Math.min(total, budget) - CONTEXT - 100 * MIB,
        optimizer_bytes: RESIDENT,
        reserved_bytes: Math.min(total, budget - 6 * MIB) - CONTEXT,
        resident_bytes: RESIDENT,
        needed_bytes: needed - CONTEXT,
      },
    };
  },
};

it('a peak that falls, as a library does with less, foretells no size that is many times as large', () => {
  const s = search(falls, constraints({ budgetBytes: 8192 * MIB, expandable: 'possible' }), false, 400, true);
  const { max_micro_batch: max } = found(s);
  const largest = Math.floor((8192 - 3090) / 15.7);
  expect(max).toBeLessThanOrEqual(largest);
  expect(max).toBeGreaterThanOrEqual(0.975 * largest);
  const fallen = s.probes.findIndex((one) => one.micro_batch > 177);
  expect(Math.max(...s.probes.slice(fallen).map((one) => one.micro_batch))).toBeLessThanOrEqual(3 * 190);
});

/** U-Net on an H100 under 24 GiB (bench/results/search-gpu.md): 3 % more than its line promises fits, and runs slower by `slower`. */
const unet = (slower: number): Job => ({
  run: ({ micro_batch: size }) => {
    const [resident, sample, room] = [300 * MIB, 200 * MIB, 24 * 1024 * MIB - CONTEXT];
    if (resident + 0.97 * sample * size > room) return { outcome: 'device_oom' };
    const tight = resident + sample * size > room;
    const active = Math.min(resident + sample * size, room);
    return {
      outcome: 'fit',
      step_s: 0.0023 * size * (tight ? 1 / (1 - slower) : 1),
      flexible_workspaces: true,
      ...(tight ? { alloc_retries: 3, restless: true, workspaces_refused: true } : {}),
      peaks: {
        total_bytes: active + CONTEXT,
        forward_backward_bytes: active - 10 * MIB,
        optimizer_bytes: resident,
        reserved_bytes: active,
        resident_bytes: resident,
        needed_bytes: resident + 0.97 * sample * size,
      },
    };
  },
});

describe('a largest size that gives back its cache in every step, just above what is proved', () => {
  const searched = (slower: number, forks = false) =>
    search(unet(slower), constraints({ budgetBytes: 24 * 1024 * MIB, expandable: 'possible' }), false, 400, forks);

  it('is worth no other start where that makes it slower, and a note names it', () => {
    const s = searched(0.15);
    const { max_micro_batch: max, notes } = found(s);
    expect([s.launches, max]).toEqual([2, 116]);
    expect(notes).toContainEqual(expect.stringMatching(/^Micro-batch 119 ran too, 1[45] % slower, as it gives back/));
  });

  it('is proved by a fork, and what is faster is recommended', () => {
    const s = searched(0.15, true);
    const { max_micro_batch: max, config, notes } = found(s);
    expect([s.launches, max]).toEqual([1, 119]);
    expect(config.micro_batch).toBeLessThan(119);
    expect(notes.join(' ')).not.toContain('ran too');
  });

  it('is proved where it is as fast', () => {
    const s = searched(0.02);
    expect([s.launches, found(s).max_micro_batch]).toEqual([3, 119]);
  });
});

/** The same where the hook tells what each size needs, workspace left out, in bytes. */
const telling = (job: Job, needed: (size: number) => number): Job => ({
  run: (probe, warm) => {
    const result = job.run(probe, warm);
    return result.peaks ? { ...result, peaks: { ...result.peaks, needed_bytes: needed(probe.micro_batch) } } : result;
  },
});

describe('what a step needs besides workspace', () => {
  it.each([
    [
      'acgan',
      hidden,
      3072,
      (size: number) => RESIDENT + 1.96 * MIB * size,
      (3072 * MIB - 24 * MIB - CONTEXT - RESIDENT) / (1.96 * MIB),
      5,
    ],
    ['ResNet-18 of timm', falls, 8192, (size: number) => (3090 - 740 + 15.7 * size) * MIB, (8192 - 3090) / 15.7, 6],
    ['U-Net', unet(0.15), 24576, (size: number) => (300 + 0.97 * 200 * size) * MIB, (24576 - 740 - 300) / 194, 3],
  ] as const)('tells the limit from small sizes: %s', (_, job, budget, needed, limit, lives) => {
    const c = constraints({ budgetBytes: budget * MIB, expandable: 'possible' });
    const s = search(telling(job, needed), c, false, 400, true);
    const { max_micro_batch: max } = found(s);
    expect(max).toBeLessThanOrEqual(limit);
    expect(max).toBeGreaterThanOrEqual(0.98 * Math.floor(limit));
    expect(s.observations.at(-1)?.life).toBeLessThanOrEqual(lives);
  });

  it('is believed above what is proved where that lasts twenty steps in which the cache is given back', () => {
    const limit = (3072 * MIB - 24 * MIB - CONTEXT - RESIDENT) / (1.96 * MIB);
    const told = telling(hidden, (size) => RESIDENT + 1.96 * MIB * size);
    const dies: Job = {
      run: (probe, warm) =>
        probe.micro_batch > 0.985 * limit && probe.retry_steps >= 12
          ? { outcome: 'device_oom' }
          : told.run(probe, warm),
    };
    const c = constraints({ budgetBytes: 3072 * MIB, expandable: 'possible' });
    const { max_micro_batch: max } = found(search(dies, c, false, 400, true));
    expect(max).toBeLessThanOrEqual(0.985 * limit);
    expect(max).toBeGreaterThanOrEqual(0.96 * limit);
  });

  it('tells what leaves the headroom, where a library takes all that is left', () => {
    const [budget, sample] = [3072 * MIB, 2 * MIB];
    const job: Job = {
      run: ({ micro_batch: size }) => {
        const needed_bytes = RESIDENT + sample * size;
        if (CONTEXT + needed_bytes > budget - 40 * MIB) return { outcome: 'device_oom' };
        const total = Math.min(budget - 8 * MIB, CONTEXT + needed_bytes + 5 * sample * size);
        const peaks = { total_bytes: total, forward_backward_bytes: total - CONTEXT - 4 * MIB, needed_bytes };
        return {
          outcome: 'fit',
          step_s: 0.0002 * size,
          flexible_workspaces: true,
          peaks: { ...peaks, optimizer_bytes: RESIDENT, reserved_bytes: total - CONTEXT, resident_bytes: RESIDENT },
        };
      },
    };
    const answer = found(search(job, constraints({ budgetBytes: budget, expandable: 'possible' }), false, 400, true));
    const largest = (budget - 40 * MIB - CONTEXT - RESIDENT) / sample;
    expect(answer.max_micro_batch).toBeGreaterThanOrEqual(0.98 * Math.floor(largest));
    expect(answer.config.micro_batch).toBeGreaterThanOrEqual(0.92 * largest);
    expect(CONTEXT + RESIDENT + sample * answer.config.micro_batch).toBeLessThanOrEqual(0.97 * budget);
    expect(answer.notes.join(' ')).toContain('what the size needs leaves 3 % of the budget');
  });
});
