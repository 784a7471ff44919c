import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { refusal, unusableFolder } from '../../src/common/refusal.js';
import { startRedis } from '../store/home.js';
import { Oomtune, PROGRAM } from './oomtune.js';

const oomtune = new Oomtune();
const folder = mkdtempSync(join(tmpdir(), 'oomtune-odd-'));
const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});
afterAll(async () => {
  await oomtune.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('a state folder', () => {
  writeFileSync(join(folder, 'file'), '');
  const noHome = { OOMTUNE_HOME: '', XDG_STATE_HOME: '' };
  it.each([
    ['that is a file', { OOMTUNE_HOME: join(folder, 'file') }],
    ['below a file', { OOMTUNE_HOME: join(folder, 'file', 'below') }],
    ['in a home that cannot be made', { ...noHome, HOME: '/proc/no-such-home' }],
    ['in a home that is a device', { ...noHome, HOME: '/dev/null' }],
  ])('%s is told as that, and ends at once', async (_, env) => {
    for (const verb of [['status'], ['redis', 'url'], ['submit', '--', 'true']]) {
      const { code, stderr, stdout } = await oomtune.call(verb, { env });
      expect(stderr).toContain('(OOMTUNE_HOME_UNUSABLE)');
      expect(stderr).toContain('OOMTUNE_HOME');
      expect([code, stdout]).toEqual([5, '']);
    }
    expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('');
  });

  it.each([
    ['by a relative path', 'relative', join(folder, 'relative')],
    ['with characters that mean something in a URL', join(folder, '50%?#%41 é'), join(folder, '50%?#%41 é')],
  ])('%s holds a Redis whose URL leads to it', async (_, home, place) => {
    mkdirSync(place, { mode: 0o755 });
    const env = { OOMTUNE_HOME: home };
    stops.push(() => oomtune.call(['redis', 'stop'], { env, cwd: folder }));
    expect(await oomtune.json(['status'], { env, cwd: folder })).toEqual({
      schema: 1,
      jobs: [],
      foreground: [],
      unreadable: [],
    });
    const { stdout: url } = await oomtune.call(['redis', 'url'], { env, cwd: folder });
    expect(decodeURIComponent(new URL(url.trim()).pathname)).toBe(join(place, 'redis', 'redis.sock'));
    expect(await oomtune.json(['status', '--redis', url.trim()])).toEqual({
      schema: 1,
      jobs: [],
      foreground: [],
      unreadable: [],
    });
    expect(statSync(place).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(place, 'redis')).filter((file) => /conf\./.test(file))).toEqual([]);
  });

  it('by a relative path is that of a daemon and of its jobs, too', async () => {
    const cwd = join(folder, 'called-in');
    mkdirSync(cwd);
    const how = { env: { OOMTUNE_HOME: 'mine' }, cwd };
    stops.push(async () => {
      await oomtune.call(['daemon', 'stop', '--kill'], how);
      await oomtune.call(['redis', 'stop'], how);
    });
    const started = await oomtune.call(['daemon', 'start', '--http-port', '0'], how);
    expect(started.code, started.stderr).toBe(0);
    const says = ['sh', '-c', 'echo "home $OOMTUNE_HOME"'];
    const { stdout: job } = await oomtune.call(['submit', '--device', 'cpu', '--cwd', '/', '--', ...says], how);
    expect((await oomtune.call(['wait', job.trim()], how)).code).toBe(0);
    expect((await oomtune.call(['logs', job.trim()], how)).stdout).toContain(`home ${join(cwd, 'mine')}\n`);
    expect(readdirSync(join(cwd, 'mine'))).not.toContain('mine');
  });

  it('that is full is told as that, wherever the write failed', () => {
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    expect(refusal(full, '/home/oomtune')).toMatchObject({
      code: 'OOMTUNE_HOME_UNUSABLE',
      message: expect.stringContaining(
        '/home/oomtune, where oomtune keeps its state, cannot be used: there is no room',
      ),
      remedy: expect.stringMatching(/^Make room there, or set OOMTUNE_HOME /),
    });
    expect(unusableFolder('/home/oomtune', new Error('ledger: No space left on device')).remedy).toMatch(/^Make room/);
    const elsewhere = Object.assign(new Error('EACCES: permission denied, open'), { code: 'EACCES', path: '/other' });
    expect(refusal(elsewhere, '/home/oomtune')).toBeNull();
  });
});

const words = (text: string): string[] => text.split(' ');

describe('a disk that is full where stdout goes', () => {
  it.each([['status'], ['status --json'], ['completion bash'], ['--help']])('is told: %s', async (verb) => {
    const { status, stderr } = spawnSync('sh', ['-c', `"$0" ${verb} > /dev/full`, PROGRAM], {
      env: oomtune.env,
      encoding: 'utf8',
    });
    expect(stderr).toMatch(/^oomtune: The output cannot be written: ENOSPC/);
    expect(status).toBe(5);
  });
});

describe('a daemon that does not start', () => {
  it.each([
    ['a file that is no YAML', { OOMTUNE_FAIR_SHARE: join(folder, 'share.yaml') }, 'docs/reference/configuration.md'],
    ['a level of the log that there is none of', { OOMTUNE_LOG: 'loud' }, 'OOMTUNE_LOG'],
  ])('says of %s what the daemon itself says', async (_, env, remedy) => {
    writeFileSync(join(folder, 'share.yaml'), 'half_life: [24h\nlimits: {gpus: 2\n');
    type Said = { error: { code: string; message: string; remedy: string } };
    const [run, start] = [
      (await oomtune.json(['daemon', 'run'], { env })) as Said,
      (await oomtune.json(['daemon', 'start'], { env })) as Said,
    ];
    expect(start).toEqual(run);
    expect(start.error).toMatchObject({ code: 'OOMTUNE_USAGE', remedy: expect.stringContaining(remedy) });
  });
});

describe('a Redis that refuses what it is asked', () => {
  const refused = async (url: string, says: RegExp, verbs = [['submit', '--device', 'cpu', '--', 'true']]) => {
    for (const verb of verbs) {
      const { code, stderr } = await oomtune.call([verb[0] as string, '--redis', url, ...verb.slice(1)]);
      expect(stderr).toMatch(says);
      expect(stderr).toMatch(/^oomtune: Redis refused a command/); // and no library's own words before it
      expect(stderr).toContain('(OOMTUNE_REDIS_REFUSED)');
      expect(code).toBe(5);
    }
    const { code, stderr } = await oomtune.call(['daemon', 'start', '--redis', url]);
    expect([code, stderr]).toEqual([5, expect.stringMatching(says)]);
    expect(stderr).toContain('(OOMTUNE_REDIS_REFUSED)');
    const { checks } = (await oomtune.json(['doctor', '--redis', url])) as { checks: Record<string, string>[] };
    expect(checks.filter((check) => check.status === 'failed' && says.test(check.found as string))).not.toEqual([]);
  };

  it('because it is a replica', async () => {
    const primary = await startRedis();
    stops.push(primary.stop);
    const replica = await startRedis(['--replicaof', '127.0.0.1', String(primary.port)]);
    stops.push(replica.stop);
    await refused(`redis://127.0.0.1:${replica.port}`, /read-only replica/);
  });

  it('because it is full', async () => {
    const redis = await startRedis(['--maxmemory', '100kb', '--maxmemory-policy', 'noeviction']);
    stops.push(redis.stop);
    await refused(`redis://127.0.0.1:${redis.port}`, /is full/);
  });

  it('because its user lacks rights', async () => {
    const redis = await startRedis(words('--user reader on >pw ~* &* +@read +ping +info --user nobody on >pw'));
    stops.push(redis.stop);
    await refused(`redis://reader:pw@127.0.0.1:${redis.port}`, /may not do that/);
    await refused(`redis://nobody:pw@127.0.0.1:${redis.port}`, /may not do that/, [['status'], ['redis', 'url']]);
  });

  it('does not when its user has the rights that the remedy names', async () => {
    const redis = await startRedis(words('--user tuner on >pw ~{oomtune}:* &{oomtune}:* +@all -@dangerous +info'));
    stops.push(redis.stop);
    const url = `redis://tuner:pw@127.0.0.1:${redis.port}`;
    const { code, stderr } = await oomtune.call(['submit', '--redis', url, '--device', 'cpu', '--', 'true']);
    expect([code, stderr]).toEqual([0, expect.stringMatching(/^note: no daemon runs: .*\n$/)]);
    const { checks } = (await oomtune.json(['doctor', '--redis', url])) as { checks: Record<string, string>[] };
    expect(checks.filter((check) => check.check === 'redis' && check.status !== 'ok')).toEqual([]);
  });
});
