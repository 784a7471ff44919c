import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { printable } from '../../src/cli/output.js';
import { hostName, openStore } from '../../src/store/index.js';
import { job, recommendation } from '../store/samples.js';
import { Oomtune, PROGRAM } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

it('lets colours, tabs and line ends through to the terminal, and no other control character', () => {
  expect(printable('\u001b[31mred\u001b[39m\ta\nb é 名')).toBe('\u001b[31mred\u001b[39m\ta\nb é 名');
  expect(printable('a\u001b[2Jb\u001b]0;title\u0007c\rd\u009b1me')).toBe('a [2Jb ]0;title c d 1me');
});

it('what others wrote to Redis steers no terminal', async () => {
  const { url } = (await oomtune.json(['redis', 'url'])) as { url: string };
  const store = await openStore({ url });
  const evil = '\u001b[2J\u001b]0;owned\u0007';
  const held = job({ state: 'held', reason: `held ${evil}`, name: 'held' });
  await store.jobs.create(held);
  await store.recommendations.put(recommendation({ gpu_model: `Card${evil}`, name: 'card' }), null);
  await store.close();
  for (const verb of [
    ['explain', held.job],
    ['status', held.job],
    ['status'],
    ['recommend', 'card'],
    ['explain', 'card'],
  ]) {
    const { code, stdout, stderr } = await oomtune.call(verb, { env: { FORCE_COLOR: '1' } });
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/held|Card/);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    expect(stdout + stderr, verb.join(' ')).not.toMatch(/\u001b\[2J|\u001b\]|\u0007/);
  }
});

it('colours and terminal sequences in what a job left behind reach no terminal, by no verb', async () => {
  const { url } = (await oomtune.json(['redis', 'url'])) as { url: string };
  const store = await openStore({ url });
  const evil = '\u001b[31mred\u001b[0m\u001b]52;c;aGFjaw==\u0007\u009b2J\u202e';
  const failure = { class: 'user_error' as const, evidence: `died ${evil}`, fields: { advice: `mend ${evil}` } };
  const held = job({ state: 'failed', reason: `died ${evil}`, name: 'evil', command: ['sh', evil], failure });
  await store.jobs.create(held);
  await store.recommendations.put(recommendation({ gpu_model: `Card ${evil}`, name: 'evilcard' }), null);
  await store.close();
  const log = join(oomtune.home, 'evil.log');
  writeFileSync(log, `RuntimeError: CUDA out of memory ${evil}\n`);
  for (const verb of [
    ['status'],
    ['status', held.job],
    ['explain', held.job],
    ['wait', held.job],
    ['recommend'],
    ['recommend', 'evilcard'],
    ['explain', 'evilcard'],
    ['diagnose', log],
    ['status', held.job, '--json'],
    ['logs', evil],
  ]) {
    const { stdout, stderr } = await oomtune.call(verb, { env: { NO_COLOR: '1' } });
    expect(stdout + stderr, verb.join(' ')).toMatch(/red|memory|evil/);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    expect(stdout + stderr, verb.join(' ')).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
  }
});

const script = existsSync('/usr/bin/script');
if (!script) console.warn('Skipped: logs on a terminal, as script(1) is not installed (apt-get install bsdutils).');

it.skipIf(!script)('logs hands a pipe every byte, and a terminal text and colours only', async () => {
  const { url } = (await oomtune.json(['redis', 'url'])) as { url: string };
  const store = await openStore({ url });
  const dir = join(oomtune.home, 'runs', 'j-evil2222', '1');
  mkdirSync(dir, { recursive: true });
  const printed = 'a\u001b]52;c;aGFjaw==\u0007b\u001b[31mred\u001b[0m\u001b[2Jc\n';
  writeFileSync(join(dir, 'log'), printed);
  const launches = [{ launch: 1, dir, purpose: 'run' as const, config: null }];
  const ended = job({ job: 'j-evil2222', state: 'succeeded', name: 'prints', host: hostName(), launches });
  await store.jobs.create(ended);
  await store.close();
  expect((await oomtune.call(['logs', ended.job])).stdout).toBe(printed);
  const terminal = execFileSync('script', ['-qec', `${PROGRAM} logs ${ended.job}`, '/dev/null'], {
    env: { ...oomtune.env, TERM: 'xterm' },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  expect(terminal).toBe('ab\u001b[31mred\u001b[0mc\r\n\u001b[0m');
});
