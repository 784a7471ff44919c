/**
 * Properties draw the same cases in every run: a suite that passed passes again, and a failure is a change's.
 * OOMTUNE_TEST_SEED=random (or a number) draws others; a failing property prints its seed.
 */
import fc from 'fast-check';

const SEED = 1;
const asked = process.env.OOMTUNE_TEST_SEED;
if (asked !== 'random') fc.configureGlobal({ seed: asked === undefined ? SEED : Number(asked) });
