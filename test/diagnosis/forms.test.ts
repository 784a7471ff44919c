import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Form, generate, MUTATIONS, randomFrom, readForms, wholeLog } from '../../bench/diagnose/corpus.mjs';
import type { Diagnosis } from '../../src/contract/diagnosis.js';
import type { LedgerReading } from '../../src/contract/launch.js';
import { type DiagnoseInput, diagnose } from '../../src/worker/diagnosis/index.js';
import { signatures } from '../../src/worker/diagnosis/signatures.js';

const FORMS = readForms();

describe('the forms of failures', () => {
  it('are three or more for every signature', () => {
    const known = new Set(signatures().uses.flatMap((uses) => uses.map(({ signature }) => signature.id)));
    const formsOf = (id: string) => FORMS.filter((form) => form.signature === id);
    expect([...known].filter((id) => formsOf(id).length < 3)).toEqual([]);
    expect(FORMS.filter(({ signature }) => !known.has(signature))).toEqual([]);
  });

  it.each(FORMS)('$signature, $version is judged right', async (form) => {
    const d = await diagnose({ log: [Buffer.from(wholeLog(form, randomFrom(1)))], exitCode: form.exit });
    expect(d.class).toBe(form.class);
    if (form.ambiguous) expect(d.certain).toBe(false);
  });
});

describe('the generated corpus', () => {
  it('is judged right in 98 of 100 logs, none of them a false device_oom for certain', async () => {
    let right = 0;
    let all = 0;
    const bold: string[] = [];
    let large = 0;
    for (const { form, mutation, log } of generate()) {
      // Of the logs of 1 MB every fifth: all of them take half a minute, in bench/diagnose/accuracy.mjs.
      if (mutation.includes('1 MB') && large++ % 5 !== 0) continue;
      const d = await diagnose({ log: [Buffer.from(log)], exitCode: form.exit });
      const name = `${form.signature}, ${form.version}, ${mutation}: ${d.class}`;
      all += 1;
      if (d.class === form.class) right += 1;
      else if (d.class === 'device_oom' && d.certain) bold.push(name);
      if (d.class === form.class && d.certain && form.ambiguous) bold.push(name);
    }
    expect(bold).toEqual([]);
    expect(right / all).toBeGreaterThanOrEqual(0.98);
  });
});

/** How the process ended, as one who waited for it knows it. */
type End = Pick<DiagnoseInput, 'exitCode' | 'signal'>;
/** What is known of an end beside its log, by what would tell it. */
interface Evidence {
  end: End;
  ledger: LedgerReading | null;
  hook: DiagnoseInput['hook'];
  hostOom: boolean | null;
  totalBytes: number | null;
}

const REFUSED: LedgerReading = {
  devices: [],
  refused: 1,
  refusals: [
    {
      pid: 7,
      api: 'cuMemAlloc_v2',
      size_bytes: 200,
      live_bytes: 900,
      budget_bytes: 1000,
      by: 'budget',
      device: 'cuda:0',
      at: '2026-01-01T00:00:00Z',
    },
  ],
  blind: false,
};

const evidence: fc.Arbitrary<Evidence> = fc.record({
  end: fc.constantFrom<End[]>(
    { exitCode: 1 },
    { exitCode: 124 },
    { exitCode: 137 },
    { exitCode: null, signal: 'SIGKILL' },
    { exitCode: null, signal: 'SIGTERM' },
    { exitCode: null, signal: 'SIGSEGV' },
  ),
  ledger: fc.constantFrom(null, REFUSED, { ...REFUSED, refused: 0, refusals: [] }),
  hook: fc.constantFrom(null, {
    class: 'torch.OutOfMemoryError',
    message: 'CUDA out of memory. Tried to allocate 2.00 GiB.',
    phase: 'train' as const,
    oom: true,
  }),
  hostOom: fc.constantFrom(null, true, false),
  totalBytes: fc.constantFrom(null, 24 * 2 ** 30),
});

function judge(text: string, { end, ...more }: Partial<Evidence>): Promise<Diagnosis> {
  return diagnose({ log: [Buffer.from(text)], device: 'cuda', ...end, ...more });
}

const log = fc
  .tuple(fc.constantFrom(...FORMS), fc.constantFrom(...Object.keys(MUTATIONS)), fc.nat(1000))
  .filter(([, mutation]) => !mutation.includes('1 MB'))
  .map(([form, mutation, seed]: [Form, string, number]) => {
    const whole = wholeLog(form, randomFrom(seed));
    return (
      (MUTATIONS[mutation] as (log: string, random: () => number) => string | null)(whole, randomFrom(seed)) ?? whole
    );
  });

/** `less` claims for certain what `more` was not certain of. */
function bolder(less: Diagnosis, more: Diagnosis): boolean {
  return less.class === more.class && less.certain && !more.certain;
}

const KINDS = ['end', 'ledger', 'hook', 'hostOom', 'totalBytes'];

describe('a verdict', () => {
  it('never gets more certain when evidence beside the log is taken away', async () => {
    await fc.assert(
      fc.asyncProperty(log, evidence, fc.subarray(KINDS), async (text, all, gone) => {
        const left = Object.fromEntries(Object.entries(all).filter(([kind]) => !gone.includes(kind)));
        const more = await judge(text, all);
        expect(bolder(await judge(text, left), more), `${more.class} is certain without ${gone}`).toBe(false);
      }),
      { numRuns: 1500 },
    );
  });

  it('never gets more certain when the end of the log is cut off', async () => {
    await fc.assert(
      fc.asyncProperty(log, fc.double({ min: 0, max: 1, noNaN: true }), async (text, part) => {
        const more = await diagnose({ log: [Buffer.from(text)], exitCode: 1 });
        const cut = text.slice(0, Math.floor(text.length * part));
        const less = await diagnose({ log: [Buffer.from(cut)], exitCode: 1 });
        expect(bolder(less, more), `${more.class}: ${cut.slice(-300)}`).toBe(false);
      }),
      { numRuns: 1500 },
    );
  });
});
