import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { notification } from '../../src/contract/notification.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
let server: Server;
const got: unknown[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (data) => {
      body += data;
    });
    request.on('end', () => {
      got.push(JSON.parse(body));
      response.end('ok');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(async () => {
  await oomtune.close();
  await new Promise((resolve) => server.close(resolve));
});

const url = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
const alone = ['--no-tune', '--device', 'cpu', '--name', 'alone'];
const told = (file: string) => notification.parse(JSON.parse(readFileSync(join(oomtune.home, file), 'utf8')));

describe('--notify in the foreground', () => {
  it('tells of the end of a run, whose exit code stays its own', async () => {
    const command = ['--', 'sh', '-c', 'printenv OOMTUNE_NOTIFY > seen; exit 3'];
    const { code } = await oomtune.call(['run', ...alone, '--notify', 'cat > told.json', ...command]);
    expect(code).toBe(3);
    expect(told('told.json')).toMatchObject({ event: 'ended', name: 'alone', state: 'failed', exit_code: 3 });
    expect(told('told.json').text).toMatch(/^alone \(j-\w+\) failed after \d+s on .* cpu: user_error/);
    expect(readFileSync(join(oomtune.home, 'seen'), 'utf8')).toBe('');
  });

  it('takes OOMTUNE_NOTIFY where nothing else is said, and tells nobody where that is empty', async () => {
    const env = { OOMTUNE_NOTIFY: url() };
    expect((await oomtune.call(['run', ...alone, '--', 'true'], { env })).code).toBe(0);
    expect(got).toHaveLength(1);
    expect(notification.parse(got[0])).toMatchObject({ event: 'ended', state: 'succeeded' });
    await oomtune.call(['run', ...alone, '--notify', 'cat > other.json', '--', 'true'], { env });
    await oomtune.call(['run', ...alone, '--', 'true'], { env: { OOMTUNE_NOTIFY: '' } });
    expect(got).toHaveLength(1);
    expect(told('other.json').state).toBe('succeeded');
  });

  it('says what cannot be told, and harms nothing', async () => {
    const { code, stderr } = await oomtune.call([
      'run',
      ...alone,
      '--notify',
      'echo no bell >&2; exit 7',
      '--',
      'true',
    ]);
    expect(code).toBe(0);
    expect(stderr).toContain('note: a notification could not be told: the command ended with exit code 7: no bell');
    const nobody = await oomtune.call(['run', ...alone, '--notify', 'http://127.0.0.1:9/secret', '--', 'true']);
    expect(nobody.code).toBe(0);
    expect(nobody.stderr).toMatch(/127\.0\.0\.1:9 cannot be reached/);
    expect(nobody.stderr).not.toContain('secret');
  });

  it('tells of a search with what it found', async () => {
    const tiny = join(ROOT, 'test', 'fixtures', 'worker', 'tiny.py');
    const options = ['--device', 'cpu', '--budget', '60MiB', '--max-batch', '8', '--notify', 'cat > search.json'];
    const { code, stderr } = await oomtune.call(['find-batch', ...options, '--', PYTHON, tiny]);
    expect(code, stderr).toBe(0);
    expect(told('search.json')).toMatchObject({ event: 'ended', state: 'succeeded', name: 'tiny' });
    expect(told('search.json').config?.micro_batch).toBeGreaterThan(0);
    expect(stderr).toMatch(/searched for [\d.]+ s: start [\d.]+ s, warm-up [\d.]+ s, steps [\d.]+ s, verification/);
  });

  it.each([
    ['', 'a command or a URL'],
    ['http://', 'a command or a URL'],
  ])('refuses "%s"', async (target, words) => {
    const { code, stderr } = await oomtune.call(['submit', '--notify', target, '--', 'true']);
    expect({ code, said: stderr.includes(words) }).toEqual({ code: 2, said: true });
  });
});
