import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ascii, asciiOnly, continued, wrapped } from '../../src/cli/output.js';
import { openStore } from '../../src/store/index.js';
import { job, recommendation } from '../store/samples.js';
import { error, submitted } from './contract.js';
import { Oomtune, PROGRAM } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const WORDS =
  'The learning rate and its schedule stay as they are written, and have to be chosen anew for\u001b[1m larger\u001b[22m steps';

describe('lines that are longer than the terminal is wide', () => {
  it.each([60, 80, 100])('are broken between words at %s columns', (columns) => {
    const text = `  note: ${WORDS} ${WORDS}`;
    const lines = wrapped(text, columns).split('\n');
    expect(lines.length).toBeGreaterThan(1);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours take no room
    for (const line of lines) expect(line.replace(/\u001b\[\d+m/g, '').length).toBeLessThanOrEqual(columns);
    expect(lines.map((line) => line.trim()).join(' ')).toBe(text.trim());
    expect(lines.slice(1).every((line) => line.startsWith('    '))).toBe(true);
  });

  it('stay as they are in a pipe, and where a word has no place to be broken at', () => {
    expect(wrapped(WORDS, undefined)).toBe(WORDS);
    expect(wrapped(`in ${'/long'.repeat(30)} it`, 60)).toBe(`in\n  ${'/long'.repeat(30)}\n  it`);
  });

  it('are one command for a shell where they are one', () => {
    const command = `printf '%s ' ${Array.from({ length: 40 }, (_, at) => `word-${at}`).join(' ')}`;
    const shown = continued(command, '  run it: ', 60);
    expect(shown.split('\n').length).toBeGreaterThan(3);
    for (const line of shown.split('\n')) expect(line.length).toBeLessThanOrEqual(60);
    const shell = (line: string) => execFileSync('sh', ['-c', line], { encoding: 'utf8' });
    expect(shell(shown.replace('  run it: ', ''))).toBe(shell(command));
  });

  describe('in a real terminal', () => {
    beforeAll(async () => {
      process.env.OOMTUNE_HOME = oomtune.home;
      const store = await openStore();
      const gpu = { gpu_model: 'NVIDIA RTX 6000 Ada Generation with a name of several words and some more of them' };
      await store.recommendations.put(recommendation({ key: 'bert:cpu:1g:1x', name: 'bert', ...gpu }), null);
      await store.close();
    });

    it.each([60, 80, 100])('of %s columns no word is broken', (columns) => {
      const calls = [
        'recommend bert',
        'explain bert',
        'logs nothing',
        'doctor',
        'submit --device cpu --name queued -- true',
        'status',
        'status @',
        'devices',
        '',
        '--help',
        'submit --help',
      ];
      for (const call of calls) {
        const line = `stty cols ${columns}; '${PROGRAM}' ${call}; true`;
        const text = execFileSync('script', ['-qec', line, '/dev/null'], { encoding: 'utf8', env: oomtune.env });
        // biome-ignore lint/suspicious/noControlCharactersInRegex: colours take no room
        const lines = text.replace(/\u001b\[[\d;]*m/g, '').split(/\r?\n/);
        expect(lines.length).toBeGreaterThan(1);
        const long = lines.filter((one) => [...one].length > columns);
        // What cannot be broken stands alone on its line
        expect(long.filter((one) => one.trim().includes(' '))).toEqual([]);
      }
    });
  });
});

describe('a locale without UTF-8', () => {
  it('is one that says so', () => {
    expect(
      [{ LC_ALL: 'C' }, { LANG: 'POSIX' }, { LC_ALL: 'C', LANG: 'C.UTF-8' }, { LANG: 'de_DE' }].map(asciiOnly),
    ).toEqual([true, true, true, true]);
    expect([{}, { LANG: 'C.UTF-8' }, { LC_ALL: '', LANG: 'en_US.utf8' }].map(asciiOnly)).toEqual([false, false, false]);
  });

  it('gets ASCII', async () => {
    expect(ascii('✓ 2 × 4 … “é” ⠒⣀ 日')).toBe('+ 2 x 4 ... "e" .. ?');
    const env = { LC_ALL: 'C', LANG: 'C' };
    const store = await openStore();
    const odd = job({ name: 'größe-…-日', reason: 'waits for “cuda:0” → until it is free', command: ['echo', 'é ✓'] });
    await store.jobs.create(odd);
    await store.close();
    const verbs = (await oomtune.call(['--help'])).stdout.match(/^ {2}[a-z-]+(?= )/gm) ?? [];
    expect(verbs.length).toBeGreaterThan(15);
    const found = await oomtune.call(['find-batch', '--device', 'cpu', '--budget', '300MiB', '--', 'true'], { env });
    const calls = [
      ['doctor', '--redis', 'redis://127.0.0.1:1'],
      ['recommend', 'bert'],
      ['recommend'],
      ['--help'],
      [],
      ['--version'],
      ['explain', 'bert'],
      ['explain', odd.job],
      ['status'],
      ['status', odd.job],
      ['status', '--users'],
      ['devices'],
      ['daemon', 'status'],
      ['redis', 'status'],
      ['logs', odd.job],
      ['no-such-verb'],
      ['status', 'größe'],
      ...verbs.map((verb) => [verb.trim(), '--help']),
    ];
    const steering = [['hold'], ['edit', '--priority', '3'], ['release'], ['cancel'], ['wait'], ['retry']];
    const steered = [];
    for (const [verb = '', ...rest] of steering) steered.push(await oomtune.call([verb, odd.job, ...rest], { env }));
    const ended = [found, ...steered, ...(await Promise.all(calls.map((call) => oomtune.call(call, { env }))))];
    for (const [at, { stdout, stderr }] of ended.entries()) {
      const call = [['find-batch'], ...steering, ...calls][at]?.join(' ');
      expect(`${stdout}${stderr}`.length, call).toBeGreaterThan(0);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
      expect(`${stdout}${stderr}`, call).toMatch(/^[\x00-\x7f]*$/);
    }
  });
});

describe('submit', () => {
  it('says that nothing happens until a daemon is started, and says nothing where one runs', async () => {
    const args = ['submit', '--device', 'cpu', '--preset', 'none', '--', 'true'];
    const alone = await oomtune.call(args);
    expect(alone.code).toBe(0);
    expect(alone.stdout).toMatch(/^j-\w+\n$/);
    expect(alone.stderr).toContain('no daemon runs: the job waits until one is started with `oomtune daemon start`');
    const document = await oomtune.call(['submit', '--json', ...args.slice(1)]);
    expect(submitted.parse(JSON.parse(document.stdout)).job).toMatch(/^j-/);
    expect(document.stderr).toContain('no daemon runs');
    const host = await oomtune.call(['submit', '--host', 'elsewhere', ...args.slice(1)]);
    expect(host.stderr).toContain('no daemon runs on elsewhere');
    expect((await oomtune.call(['daemon', 'start'])).code).toBe(0);
    expect((await oomtune.call(args)).stderr).toBe('');
  });

  it('offers to start one on a terminal: Enter does, n and the end of the input do not', async () => {
    const asking = new Oomtune();
    const submit = (answer: string): string => {
      const line = `'${PROGRAM}' submit --device cpu --preset none --name asked -- true; echo "code $?"`;
      return execFileSync('script', ['-qec', line, '/dev/null'], { encoding: 'utf8', env: asking.env, input: answer });
    };
    try {
      for (const no of ['n\n', 'no\n', '\u0004']) {
        const text = submit(no);
        expect(text).toMatch(
          /the job waits until one is started with[\s\S]*Start a daemon on this machine now\? \[Y\/n\]/,
        );
        expect(text).toContain('code 0');
        expect(await asking.json(['daemon', 'status'])).toMatchObject({ running: false });
      }
      const yes = submit('\n');
      expect(yes).toContain('daemon runs, pid');
      expect(yes).toContain('code 0');
      expect((await asking.call(['wait', '@'])).code).toBe(0);
      expect(submit('')).not.toContain('[Y/n]');
    } finally {
      await asking.close();
    }
  });

  it('refuses a Python without torch as find-batch does', async () => {
    writeFileSync(`${oomtune.home}/train.py`, 'import torch\n');
    mkdirSync(`${oomtune.home}/bare`, { recursive: true });
    // An interpreter that finds no packages at all
    writeFileSync(`${oomtune.home}/bare/python3`, '#!/bin/sh\nexec /usr/bin/python3 -I -S "$@"\n', { mode: 0o755 });
    const command = ['--device', 'cpu', '--', `${oomtune.home}/bare/python3`, 'train.py'];
    const refusals = await Promise.all(
      ['find-batch', 'submit'].map((verb) => oomtune.call([verb, '--json', ...command])),
    );
    const [found, queued] = refusals.map(({ stdout }) => error.parse(JSON.parse(stdout)).error);
    expect(queued?.code).toBe('OOMTUNE_TORCH_MISSING');
    expect(queued).toEqual(found);
    expect(refusals.map(({ code }) => code)).toEqual([5, 5]);
  });
});
