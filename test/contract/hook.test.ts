import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { PACKAGE_ROOT } from '../../src/common/home.js';
import { type HookOrder, hookMessage, hookOrder } from '../../src/contract/hook.js';
import type { Hooking, SessionRequest } from '../../src/worker/launch/session-request.js';
import { hookEnvironment } from '../../src/worker/launch/session-request.js';
import { pythonWithTorch } from '../worker/harness.js';

const python = pythonWithTorch();

interface Fields {
  all: string[];
  required: string[];
}

/** Of each message, by the word in `t`. */
function fieldsOf(union: typeof hookMessage | typeof hookOrder): Map<string, Fields> {
  const fields = new Map<string, Fields>();
  for (const option of union.options) {
    const shape = option.shape as Record<string, { safeParse(value: unknown): { success: boolean } }>;
    const all = Object.keys(shape);
    const required = all.filter((name) => !(shape[name] as (typeof shape)[string]).safeParse(undefined).success);
    const words = 'values' in option.shape.t ? [...(option.shape.t.values as Set<string>)] : option.shape.t.options;
    for (const word of words) fields.set(word, { all, required });
  }
  return fields;
}

describe('the protocol of the hook', () => {
  const messages = fieldsOf(hookMessage);

  it('is what the Python side sends, field by field', () => {
    const script = join(import.meta.dirname, 'hook-fields.py');
    const said = JSON.parse(
      execFileSync(python, [script, join(PACKAGE_ROOT, 'python', 'oomtune')], { encoding: 'utf8' }),
    );
    // `eval` and `save` are made of a word that is a variable there; `measured` is put together from several parts: see below.
    for (const word of ['hello', 'loop', 'exception', 'step', 'warn', 'cut', 'goodbye']) agrees(word, said[word] ?? []);
    expect(Object.keys(said).filter((word) => !messages.has(word))).toEqual([]);
  });

  it('is what a real hook sends of a probe, field by field', async () => {
    const sent = await conversation();
    expect([...sent.keys()]).toEqual(expect.arrayContaining(['hello', 'loop', 'measured']));
    for (const [word, fields] of sent) agrees(word, fields);
    // All that is measured is sent, `null` where it cannot be known.
    const unsaid = (messages.get('measured') as Fields).all.filter((name) => !sent.get('measured')?.includes(name));
    expect(unsaid).toEqual(['short']); // only of a loop that ended too early
  });

  function agrees(word: string, sent: string[]): void {
    const { all, required } = messages.get(word) as Fields;
    expect([word, sent.filter((name) => !all.includes(name))]).toEqual([word, []]);
    expect([word, required.filter((name) => !sent.includes(name))]).toEqual([word, []]);
  }

  it('has a variable for each wish of a launch, which the hook heeds', () => {
    const heeded = (hook: Hooking): Record<string, unknown> => {
      const env = hookEnvironment({ hook, env: {}, dir: '/launch' } as unknown as SessionRequest, '/socket');
      const settings =
        'import json, oomtune.hook.settings as s; print(json.dumps(vars(s.Settings.from_environment()), default=lambda it: sorted(it) if isinstance(it, frozenset) else None))';
      return JSON.parse(execFileSync(python, ['-c', settings], { env: { ...process.env, ...env }, encoding: 'utf8' }));
    };
    const probe = { mode: 'probe', steps: 4 } as const;
    expect(heeded(probe)).toMatchObject({ mode: 'probe', steps: 4, forks: false, at_call: false, estimate: null });
    expect(heeded({ ...probe, forks: true, atCall: true, setsVariables: true, estimate: true })).toMatchObject({
      ...{ forks: true, at_call: true, sets_variables: true, estimate: '/launch' },
    });
    const job: Hooking = { mode: 'apply', steps: 3, knobs: ['micro_batch'], forks: true, watched: true };
    expect(heeded(job)).toMatchObject({
      ...{ mode: 'apply', knobs: ['micro_batch'], spares: true, watched: true },
    });
  });

  it('has a page that names every message and field', () => {
    const page = readFileSync(join(PACKAGE_ROOT, 'docs', 'reference', 'hook-protocol.md'), 'utf8');
    for (const [word, { all }] of [...messages, ...fieldsOf(hookOrder)]) {
      const missing = [word, ...all.filter((name) => name !== 't')].filter((name) => !page.includes(`\`${name}\``));
      expect([word, missing]).toEqual([word, []]);
    }
  });
});

/** Plays the worker to a script that trains: one probe, then the end. The fields of each message, by its word. */
async function conversation(): Promise<Map<string, string[]>> {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-contract-'));
  const path = join(folder, 'hook.sock');
  const probe: HookOrder = {
    ...{ t: 'probe', micro_batch: 4, accumulation: 1, steps: 3, batch: null, vary: false },
    ...{ amp: 'off', checkpointing: false, offload: false, chunked_loss: false },
  };
  const sent = new Map<string, string[]>();
  const server = createServer((socket) => {
    socket.on('error', () => {}); // the script ends inside its loop
    createInterface({ input: socket }).on('line', (line) => {
      const message = JSON.parse(line);
      sent.set(message.t, Object.keys(message));
      if (message.t === 'loop') socket.write(`${JSON.stringify(probe)}\n`);
      if (message.t === 'measured') socket.write(`${JSON.stringify({ t: 'end' } satisfies HookOrder)}\n`);
    });
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const env = { ...process.env, OMP_NUM_THREADS: '1' } as Record<string, string>;
  const request = { env, hook: { mode: 'probe', steps: 3 } } as unknown as SessionRequest;
  const script = join(PACKAGE_ROOT, 'test', 'fixtures', 'worker', 'wide.py');
  const child = spawn(python, [script], { cwd: folder, env: { ...env, ...hookEnvironment(request, path) } });
  await new Promise((resolve) => child.once('close', resolve));
  server.close();
  rmSync(folder, { recursive: true });
  return sent;
}
