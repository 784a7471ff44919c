import { describe } from 'vitest';
import { hookCases } from './hook-cases.js';

/** The oldest torch that is supported: Debian's. */
describe('the python hook', () => hookCases(process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3'));
