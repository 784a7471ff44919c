import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { describe, expect, it } from 'vitest';
import { createProgress } from '../../src/cli/progress.js';
import type { Observation } from '../../src/contract/measurement.js';
import type { Progress } from '../../src/worker/types.js';

const MIB = 1024 ** 2;
const RUNG = { amp: 'off', checkpointing: false } as const;

function probe(
  microBatch: number,
  outcome: 'fit' | 'device_oom',
  peak: number | null,
  evidence: string | null,
): Progress {
  const observation: Observation = {
    rung: RUNG,
    micro_batch: microBatch,
    accumulation: 1,
    launch: 1,
    fresh: false,
    steps: 3,
    outcome,
    ambiguous: false,
    phase: null,
    peaks: {
      total_bytes: peak,
      forward_backward_bytes: null,
      optimizer_bytes: null,
      reserved_bytes: null,
      resident_bytes: null,
    },
    alloc_retries: 0,
    step_s: 0.1,
    refused_bytes: null,
    evidence,
    alive: true,
  };
  return {
    type: 'probe',
    observation,
    record: {
      launch: 1,
      micro_batch: microBatch,
      amp: 'off',
      checkpointing: false,
      steps: 3,
      outcome,
      peak_bytes: peak,
      step_s: 0.1,
      samples_per_s: outcome === 'fit' ? microBatch / 0.1 : null,
      evidence,
      why: 'to see how memory grows',
    },
  };
}

/** What a person sees: \r and "erase to the end" done as a terminal does. */
const screen = (text: string): string[] =>
  text.split('\n').map((line) => stripVTControlCharacters(line.split('\r\u001b[K').at(-1) as string));

const EVENTS: Progress[] = [
  {
    type: 'device',
    budgetBytes: 300 * MIB,
    device: {
      id: 'cpu',
      uuid: 'cpu:1',
      model: 'Some CPU',
      total_bytes: 2 ** 33,
      used_bytes: 0,
      processes: [],
      note: null,
      fault: null,
      driver: null,
    },
  },
  { type: 'launch', launch: 1, rung: RUNG, why: 'to see what the script asks for' },
  {
    type: 'probing',
    launch: 1,
    probe: { rung: RUNG, micro_batch: 8, accumulation: 1, steps: 3, fresh: true, purpose: 'climb', why: 'a start' },
  },
  probe(8, 'fit', 150 * MIB, null),
  probe(64, 'device_oom', null, 'RuntimeError: not enough memory\u001b]0;evil\u0007'),
];

function shown(isTTY: boolean, env: NodeJS.ProcessEnv): string {
  let text = '';
  const view = createProgress({ isTTY, columns: 80, write: (part) => (text += part) }, env);
  for (const event of EVENTS) view.show(event);
  view.close();
  return text;
}

describe('progress', () => {
  it('in a pipe is plain lines, one an event, with nothing to rewrite', () => {
    const text = shown(false, {});
    // biome-ignore lint/suspicious/noControlCharactersInRegex: none of them may be there
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
    const lines = text.trimEnd().split('\n');
    expect(lines).toHaveLength(4);
    expect(lines[0]).toContain('300 MiB');
    expect(lines[2]).toMatch(/micro-batch +8 .*█{6}░{6}.*150 MiB.* 80\.0 samples\/s.*fit/);
    expect(lines[3]).toMatch(/micro-batch +64 .*█{12}.*out of memory.*not enough memory/);
  });

  it('on a terminal shows the probe under way on a line that its result replaces', () => {
    const text = shown(true, { TERM: 'xterm', NO_COLOR: '1' });
    const lines = text.split('\n');
    const at = lines.findIndex((line) => line.includes('… micro-batch 8'));
    expect(lines[at]).toContain('a start\r\u001b[K');
    expect(`${lines[at]} ${lines[at + 1]?.trim()}`).toMatch(/to see how memory grows$/); // longer than the terminal is wide
    expect(text).not.toContain('\u001b[3');
  });

  it('colours only terminals, and never when NO_COLOR is set', () => {
    expect(shown(true, { TERM: 'xterm' })).toContain('\u001b[32m');
    expect(shown(true, { TERM: 'xterm', NO_COLOR: '1' })).not.toContain('\u001b[32m');
    expect(shown(true, { TERM: 'dumb' })).not.toContain('\u001b');
  });

  it('lets nothing that a job wrote steer the terminal', () => {
    expect(shown(true, { TERM: 'xterm' })).not.toContain('\u001b]0;evil');
  });

  it('says once what a search and the run after it have to note', () => {
    let text = '';
    const view = createProgress({ isTTY: false, columns: 80, write: (part) => (text += part) }, {});
    for (const word of ['one', 'two', 'one']) view.show({ type: 'note', text: word });
    expect(text).toBe('note: one\nnote: two\n');
  });

  it('shows the last lines of a launch as what they are, and no notes', () => {
    let text = '';
    const view = createProgress({ isTTY: false, columns: 80, write: (part) => (text += part) }, {});
    view.show({ type: 'said', lines: ['Traceback (most recent call last):', 'MemoryError'] });
    expect(text).toBe(
      'The last launch of the search wrote at its end:\n  Traceback (most recent call last):\n  MemoryError\n',
    );
  });

  it('on a terminal says for whom it waits on one line, which the start replaces', () => {
    const device = EVENTS[0] as Progress;
    const waits = ['waits for j-aaaa', 'waits for j-bbbb'].map((reason): Progress => ({ type: 'waiting', reason }));
    const drawn: string[] = [];
    let text = '';
    const write = (part: string) => (text += part);
    const view = createProgress({ isTTY: true, columns: 80, write }, { TERM: 'xterm' });
    for (const event of [...waits, device]) {
      view.show(event);
      drawn.push(screen(text).join('|'));
    }
    expect(drawn[0]).toBe('waiting for j-aaaa');
    expect(drawn[1]).toBe('waiting for j-bbbb');
    expect(drawn[2]).toMatch(/^cpu {2}Some CPU, budget 300 MiB\|$/);
  });
});

describe('the seconds of a search', () => {
  it('end its live line: start, warm-up, steps and verification make up the whole', () => {
    let written = '';
    const view = createProgress({ isTTY: true, columns: 100, write: (text: string) => (written += text) }, {});
    const at = (size: number, wall: number): Progress => {
      const event = probe(size, 'fit', 10 * MIB, null) as Extract<Progress, { type: 'probe' }>;
      return { ...event, record: { ...event.record, wall_s: wall } };
    };
    const probing = (purpose: 'climb' | 'verify') => ({ type: 'probing', launch: 1, probe: { purpose } }) as Progress;
    view.show({ type: 'launch', launch: 1, rung: null, why: 'to begin' });
    view.show(probing('climb'));
    view.show(at(1, 1.3)); // three steps of 0.1 s
    view.show(probing('verify'));
    view.show(at(4, 2));
    view.show({ type: 'found', report: { wall_s: 7.5 } } as Progress);
    expect(screen(written).at(-2)).toBe(
      'searched for 7.5 s: start 4.2 s, warm-up 1.0 s, steps 0.3 s, verification 2.0 s',
    );
    view.show({ type: 'running', config: null, launch: 2, logFile: '' });
    expect(written.match(/searched for/g)).toHaveLength(1);
  });

  it('does not call a cut job as it stands', () => {
    let written = '';
    const view = createProgress({ write: (text: string) => (written += text) }, {});
    const config = { ...RUNG, micro_batch: 512, accumulation: 8, world_size: 1, effective_batch: 4096 };
    const running = (more: object) =>
      view.show({ type: 'running', config: { ...config, ...more }, launch: 1, logFile: '' } as Progress);
    running({});
    running({ accumulation: 1, effective_batch: 512 });
    running({ amp: 'bf16' });
    expect(written).toBe(
      'running  micro-batch 512 × accumulation 8 = 4096\n' +
        'running  micro-batch 512, as it stands\n' +
        'running  micro-batch 512 × accumulation 8 = 4096, bf16\n',
    );
  });

  it('begins a line of its own where the output of the job ends within one', () => {
    const logFile = join(mkdtempSync(join(tmpdir(), 'oomtune-progress-')), 'log');
    let written = '';
    const view = createProgress({ write: (text: string) => (written += text) }, {});
    const note = (text: string) => view.show({ type: 'note', text });
    view.show({ type: 'running', config: null, launch: 1, logFile });
    note('nothing was printed');
    writeFileSync(logFile, 'Epoch 1:  12%|#');
    note('within a bar');
    note('and one more');
    appendFileSync(logFile, '\rEpoch 1:  13%|#');
    note('within the next');
    appendFileSync(logFile, ' done\n');
    note('after a whole line');
    expect(written).toBe(
      [
        'running  as it stands',
        'note: nothing was printed',
        '',
        'note: within a bar',
        'note: and one more',
        '',
        'note: within the next',
        'note: after a whole line',
        '',
      ].join('\n'),
    );
    rmSync(dirname(logFile), { recursive: true });
  });
});
