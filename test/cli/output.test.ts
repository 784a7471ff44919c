import { afterAll, expect, it } from 'vitest';
import { printable } from '../../src/cli/output.js';
import { openStore } from '../../src/store/index.js';
import { job, recommendation } from '../store/samples.js';
import { Oomtune } from './oomtune.js';

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
