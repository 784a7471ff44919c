import { describe } from 'vitest';
import { hookCases } from './hook-cases.js';

/** A current torch and the frameworks themselves, where set-up could install them. */
const interpreter = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (interpreter === '') {
  process.stderr.write('SKIPPED: the hook under a current torch, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n');
}

describe.skipIf(interpreter === '')('the python hook under a current torch', () => hookCases(interpreter));
