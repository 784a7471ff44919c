/** What is measured of one program, part by part. Each resolves with what is recorded. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { closingSize } from '../../dist/tuner/sizes.js';
import { EXPANDABLE_SEGMENTS } from '../../dist/worker/memory/allocator.js';
import { alone, apart, lastWords, oomtune } from './programs.mjs';
import { ALIKE, isOutOfTime } from './report.mjs';

const MIB = 1024 ** 2;
const SEARCH_STEPS = 3;
const HELD_STEPS = 10;
/** What gives back its cache lasts for so many steps or not at all; so many seconds are enough to see it. */
const LASTING_STEPS = 200;
const LASTING_SECONDS = 60;
/** Optimizer steps whose weights are compared. */
const COMPARED_STEPS = 6;
/** The part of the peak of the program as it stands that is its budget when it is to be cut; more where nothing fits that, less where all does. */
const CUT_BUDGET = 0.75;
const OTHER_BUDGETS = { more: 0.9, less: 0.6 };
/** Nothing is turned on: each program keeps its own precision (`--amp off` would take nanoGPT's bfloat16 from it). */
const PLAIN = ['--exact', '--checkpointing', 'off'];
const kib = (bytes) => `${Math.floor(bytes / 1024)}KiB`;

/**
 * The command at a batch size, by the program's own flag, or (the watcher's) by its loaders: where it has no flag, and where its
 * flag sizes more than the training batches that find-batch sets; or the one
 * number in its text that is its batch size.
 */
function sized(row, place, size) {
  if (row.constant) {
    const [file, before, after] = row.constant;
    const path = join(place.cwd, file);
    place.text ??= readFileSync(path, 'utf8');
    writeFileSync(path, place.text.replace(`${before}${row.own}${after}`, `${before}${size}${after}`));
    return { argv: place.argv(row.own), batch: null };
  }
  if (!row.size || row.flagSizesMore) return { argv: place.argv(row.own), batch: size };
  return { argv: place.argv(size), batch: null };
}

export const PARTS = {
  /** Whether the program and its made data work here at all: one optimizer step. */
  async try(row, place) {
    const one = await alone(row, place, place.argv(row.own), { steps: 1 });
    if (!one.steps) throw new Error('made no optimizer step');
    return { seconds: one.seconds, peak: one.peak };
  },

  /** Twice (`--once`: once) as it stands, without oomtune: the wall to the third step, the peak, and how far two runs are apart by themselves. */
  async alone(row, place) {
    const weights = join(place.scratch, 'alone.pt');
    const again = join(place.scratch, 'again.pt');
    const argv = place.argv(row.own);
    const first = await alone(row, place, argv, { steps: COMPARED_STEPS, weights });
    if (!first.fit) throw new Error('does not fit the machine as it stands');
    if (!first.steps && row.steps !== 'none') throw new Error('made no optimizer step');
    const second = place.once ? first : await alone(row, place, argv, { steps: COMPARED_STEPS, weights: again });
    const difference = await apart(place.python, weights, place.once ? weights : again);
    if (difference?.diverged) throw new Error('its weights are not finite after six steps: nothing is to be compared');
    return {
      own: row.own,
      steps: first.steps ?? null,
      bare_s: Math.min(first.third_s ?? first.seconds, second.third_s ?? second.seconds),
      peak: first.peak,
      apart: place.once ? null : (difference?.apart ?? null),
      same: place.once ? null : (difference?.same ?? null),
    };
  },

  async search(row, place) {
    const options = ['--budget', place.budget, '--steps', String(SEARCH_STEPS), ...PLAIN, ...(row.options ?? [])];
    const { document, seconds, stderr, status } = await oomtune('find-batch', row, place, place.command, options);
    const probes = document.probes ?? [];
    return {
      budget: place.budget,
      exit: status,
      status: document.status ?? 'error',
      found: document.max_micro_batch ?? null,
      samples: document.own?.samples ?? null,
      allocator: document.config?.expandable_segments ? EXPANDABLE_SEGMENTS : {},
      launches: document.launches ?? null,
      oom_launches: probes.filter((probe) => probe.outcome === 'device_oom').length,
      search_s: seconds,
      probes: probes.map(({ life, micro_batch, outcome, peak_bytes, steps, wall_s, why }) => {
        return { life, micro_batch, outcome, peak_bytes, steps, wall_s, why };
      }),
      startup_s: document.startup_s ?? null,
      notes: document.notes ?? [],
      said: document.error?.message ?? document.failure?.evidence ?? document.failure?.message ?? null,
      last: document.status === 'found' ? null : lastWords(stderr, 6),
    };
  },

  /** Whether what was found holds in a fresh process and 2 % more (two samples at least) does not; the largest, if not. One that gives back its cache has to last. */
  async truth(row, place, known) {
    const { found, allocator = {} } = known.search ?? {};
    if (!found || row.truth === false) return null;
    const { budgetBytes } = place;
    const trials = [];
    const fits = async (size) => {
      const { argv, batch } = sized(row, place, size);
      // A constant is not made for the rest of the data, which is no whole batch.
      const samples = known.search.samples ?? Number.POSITIVE_INFINITY;
      const whole = row.constant ? Math.floor(samples / size) : Number.POSITIVE_INFINITY;
      const lasts = async (steps) => {
        const one = await alone(row, place, argv, { steps: Math.min(steps, whole), batch, budgetBytes, allocator });
        const { fit, peak, steps: made = null, retries = null, refused = null, step_s = null } = one;
        trials.push({ size, fit, peak, steps: made, retries, refused, step_s });
        return one;
      };
      const one = await lasts(HELD_STEPS);
      if (!one.fit || !(one.retries || one.refused) || one.steps < HELD_STEPS) return one.fit;
      const steps = Math.min(LASTING_STEPS, Math.floor(LASTING_SECONDS / one.step_s));
      return steps <= HELD_STEPS || (await lasts(steps)).fit;
    };
    const holds = await fits(found);
    const above = closingSize(found);
    const more = holds && (await fits(above).catch(withoutTime));
    if (more === null) return { holds, more_fits: null, largest_known: found, smallest_that_fails: null, trials };
    let [low, high] = holds ? [more ? above : found, more ? null : above] : [0, found];
    for (let reach = above - found; trials.length < 12 && (holds ? high === null : low === 0); reach *= 2) {
      const size = holds ? low + reach : Math.max(1, high - reach);
      const fit = await fits(size).catch(withoutTime);
      if (fit) low = size;
      else if (fit !== null) high = size;
      if (size === 1 || fit === null) break;
    }
    return { holds, more_fits: more, largest_known: low, smallest_that_fails: high, trials };
  },

  /** Under `run` with room for its own batch: nothing may change. */
  async stands(row, place, known) {
    const weights = join(place.scratch, 'stands.pt');
    const budget = kib(Math.max(2 * (known.alone?.peak ?? 0), 64 * MIB));
    const run = await oomtune(
      'run',
      row,
      place,
      place.command,
      ['--budget', budget, ...PLAIN, ...(row.options ?? [])],
      {
        steps: COMPARED_STEPS,
        weights,
      },
    );
    const difference = await apart(place.python, join(place.scratch, 'alone.pt'), weights);
    return { exit: run.status, ...compared(run, difference) };
  },

  /** Under `run` with a budget that its own batch does not fit. */
  async cut(row, place, known) {
    if (!known.alone?.peak || place.cut === false) return null;
    const at = async (share) => {
      const weights = join(place.scratch, `cut.${share}.pt`);
      const budget = kib(share * known.alone.peak);
      const options = ['--budget', budget, ...PLAIN, ...(row.options ?? [])];
      const run = await oomtune('run', row, place, place.command, options, { steps: COMPARED_STEPS, weights });
      const difference = await apart(place.python, join(place.scratch, 'alone.pt'), weights);
      const one = { share, budget, exit: run.status, ...compared(run, difference) };
      return (one.apart ?? 0) > ALIKE ? { ...one, rounding: await rounding(row, place) } : one;
    };
    const first = await at(CUT_BUDGET);
    if (first.exit === 0 && (first.accumulation ?? 1) > 1) return first;
    const second = await at(first.exit === 0 ? OTHER_BUDGETS.less : OTHER_BUDGETS.more);
    return second.exit === 0 ? second : first;
  },
};

/** What is known by then stands. */
function withoutTime(error) {
  if (!isOutOfTime(error.message)) throw error;
  return null;
}

/** How far the program alone is apart from itself when each weight is moved by its last bit after the first step: what rounding comes to. */
async function rounding(row, place) {
  const weights = join(place.scratch, 'nudged.pt');
  const one = await alone(row, place, place.argv(row.own), { steps: COMPARED_STEPS, weights, nudged: true });
  return one.fit ? ((await apart(place.python, join(place.scratch, 'alone.pt'), weights))?.apart ?? null) : null;
}

function compared({ document, status, stderr, watched }, difference) {
  const config = document?.config ?? null;
  return {
    micro_batch: config?.micro_batch ?? null,
    accumulation: config?.accumulation ?? null,
    cut: document?.cut?.cut ?? null,
    steps: watched?.steps ?? null,
    apart: difference?.apart ?? null,
    same: difference?.same ?? null,
    ...(difference?.diverged ? { diverged: true } : {}),
    // What run says aloud of another training than the uncut one.
    told: [...stderr.matchAll(/^(?:note|warning): (.*)$/gm)].map(([, text]) => text),
    said: status === 0 ? null : (document?.failure?.evidence ?? document?.error?.message ?? lastWords(stderr, 6)),
  };
}
