import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { daemonStatus, devices, error, memory, status, submitted } from './contract.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const PLAIN = ['--device', 'cpu', '--preset', 'none'];

async function submit(...args: string[]): Promise<string> {
  return submitted.parse(await oomtune.json(['submit', ...args])).job;
}

async function look(...jobs: string[]) {
  return status.parse(await oomtune.json(['status', ...jobs])).jobs;
}

describe('before a daemon runs', () => {
  it('status tells that none does', async () => {
    expect(await oomtune.json(['daemon', 'status'])).toMatchObject({ schema: 1, running: false });
  });

  it('jobs wait, with the reason, and can be held, released and cancelled', async () => {
    const job = await submit(...PLAIN, '--name', 'waiting', '--', 'true');
    expect(await look(job)).toMatchObject([{ job, name: 'waiting', state: 'queued', command: ['true'] }]);
    expect((await look(job))[0]?.reason).toMatch(/daemon/);
    expect((await oomtune.call(['hold', '@'])).code).toBe(0);
    expect((await look('@'))[0]?.state).toBe('held');
    expect((await oomtune.call(['explain', job])).stdout).toContain(`oomtune release ${job}`);
    expect((await oomtune.call(['release', job])).code).toBe(0);
    expect((await look(job))[0]?.state).toBe('queued');
    expect((await oomtune.call(['cancel', job])).code).toBe(0);
    expect(await look(job)).toMatchObject([{ state: 'cancelled' }]);
    const held = await oomtune.call(['hold', job]);
    expect(held.code).toBe(2);
    expect(held.stderr).toContain('cancelled');
    const late = await oomtune.call(['submit', ...PLAIN, '--after', job, '--', 'true']);
    expect(late.stderr).toContain(`note: ${job}, which it was to come after, ended as cancelled: it fails when`);
    expect([late.code, (await look(late.stdout.trim()))[0]?.state]).toEqual([0, 'queued']);
    await oomtune.call(['cancel', late.stdout.trim()]);
    const tagged = await submit(...PLAIN, '--tag', 'a', '--tag', 'b', '--tag', 'a', '--', 'true');
    expect(await oomtune.json(['status', tagged])).toMatchObject({ jobs: [{ tags: ['a', 'b'] }] });
    await oomtune.call(['cancel', tagged]);
  });
});

describe('what a waiting job asks for', () => {
  it('is shown and can be changed', async () => {
    const job = await submit(...PLAIN, '--name', 'nice', '--nice', '5', '--time', '1h30m', '--', 'true');
    expect(await oomtune.json(['status', job])).toMatchObject({ jobs: [{ priority: -5, time_limit_s: 5400 }] });
    expect(await oomtune.call(['edit', 'nice', '--priority', '7', '--time', 'none'])).toMatchObject({
      code: 0,
      stderr: `${job}  priority 7, time limit none\n`,
    });
    expect(await oomtune.json(['status', job])).toMatchObject({ jobs: [{ priority: 7, time_limit_s: null }] });
    expect((await oomtune.call(['status'])).stdout).toMatch(/PRIORITY.*nice.* 7 /s);
    for (const wrong of [[], ['--nice', '1', '--priority', '1'], ['--time', '4'], ['--priority', 'x']])
      expect((await oomtune.call(['edit', job, ...wrong])).code).toBe(2);
    await oomtune.call(['cancel', job]);
    expect((await oomtune.call(['edit', job, '--nice', '1'])).stderr).toContain('cancelled');
  });
});

describe('a sweep', () => {
  it('is one call, whose jobs are named by their values and share a recommendation', async () => {
    const { stdout } = await oomtune.call(['submit', ...PLAIN, '--sweep', 'seed=0..59', '--', 'echo', '{seed}']);
    const ids = stdout.trim().split('\n');
    expect(ids).toHaveLength(60);
    const told = (await oomtune.json(['submit', ...PLAIN, '--array', '0-1', '--name', 'two', '--', 'true'])) as object;
    expect(told).toMatchObject({ schema: 1, jobs: [expect.any(String), expect.any(String)] });
    const last = await look('echo-seed-59');
    expect(last).toMatchObject([{ job: ids[59], command: ['echo', '59'], state: 'queued' }]);
    expect((await oomtune.call(['submit', ...PLAIN, '--sweep', 'lr=1,2', '--', 'true'])).stderr).toContain('no {lr}');
    const all = await oomtune.call(['cancel', 'echo-seed-*', 'two-?']);
    expect(all.stderr.trim().split('\n')).toHaveLength(62);
    expect((await look(ids[3] as string))[0]?.state).toBe('cancelled');
    expect((await oomtune.call(['cancel', 'none-*'])).code).toBe(6);
  });
});

describe('with a daemon', () => {
  beforeAll(async () => {
    const { code, stderr } = await oomtune.call(['daemon', 'start']);
    expect(stderr).toContain('daemon runs');
    expect(code).toBe(0);
  });

  it('status tells who it is, and a second one is refused', async () => {
    const told = daemonStatus.parse(await oomtune.json(['daemon', 'status']));
    expect(told.running).toBe(true);
    expect(told.redis).toBe((await oomtune.call(['redis', 'url'])).stdout.trim());
    const second = await oomtune.call(['daemon', 'start', '--json']);
    expect(second.code).toBe(5);
    expect(error.parse(JSON.parse(second.stdout)).error.code).toBe('OOMTUNE_DAEMON_RUNNING');
  });

  it('a job is followed from submit to its end', async () => {
    const script = 'echo begin; sleep 1; echo "end of it"';
    const job = await submit(...PLAIN, '--', 'sh', '-c', script);
    const logs = await oomtune.call(['logs', '-f', job]);
    expect(logs).toMatchObject({ code: 0, stdout: 'begin\nend of it\n', stderr: '' });
    const waited = await oomtune.call(['wait', '--json', job]);
    expect(waited.code).toBe(0);
    expect(status.parse(JSON.parse(waited.stdout)).jobs).toMatchObject([{ job, state: 'succeeded', exit_code: 0 }]);
    expect((await oomtune.call(['logs', '-n', '1', '@'])).stdout).toBe('end of it\n');
  });

  it('several logs are followed with a prefix for each line', async () => {
    const ids = [await submit(...PLAIN, '--name', 'first', '--', 'echo', 'one')];
    ids.push(await submit(...PLAIN, '--name', 'second', '--', 'sh', '-c', 'echo two; printf three'));
    const { stdout } = await oomtune.call(['logs', '-f', ...ids]);
    expect(stdout.trimEnd().split('\n').sort()).toEqual(['first  | one', 'second | three', 'second | two']);
  });

  it('wait ends with 4 when a job failed, and names why', async () => {
    const job = await submit(...PLAIN, '--', 'sh', '-c', 'echo "ValueError: bad"; exit 9');
    const { code, stderr } = await oomtune.call(['wait', job]);
    expect(code).toBe(4);
    expect(stderr).toContain(`${job}  `);
    const [record] = await look(job);
    expect(record).toMatchObject({ state: 'failed', exit_code: 9 });
    expect(record?.failure?.class).toBe('user_error');
    expect((await oomtune.call(['explain', job])).stdout).toContain('failed');
  });

  it('a running job is cancelled with its whole tree, and can be retried', async () => {
    const job = await submit(...PLAIN, '--', 'sh', '-c', 'setsid sleep 301 & sleep 301');
    const sleepers = () => oomtune.leftovers().filter((one) => /^\d+ sleep 301$/.test(one));
    await vi.waitFor(() => expect(sleepers()).toHaveLength(2), { timeout: 60_000, interval: 100 });
    expect((await oomtune.call(['cancel', job])).code).toBe(0);
    expect(await look(job)).toMatchObject([{ state: 'cancelled' }]);
    expect(sleepers()).toEqual([]);
    expect((await oomtune.call(['wait', job])).code).toBe(4);
    expect((await oomtune.call(['retry', job])).stdout.trim()).toBe(job);
    await vi.waitFor(() => expect(sleepers()).toHaveLength(2), { timeout: 60_000, interval: 100 });
    await oomtune.call(['cancel', job]);
  });

  it('a second submission of the same command reuses the configuration: no search', async () => {
    const script = join(ROOT, 'examples', 'mlp.py');
    const args = ['--device', 'cpu', '--budget', '60MiB', '--name', 'reused', '--', PYTHON, script];
    const first = await submit(...args);
    expect((await oomtune.call(['wait', first])).code).toBe(0);
    const second = await submit(...args);
    expect((await oomtune.call(['wait', second])).code).toBe(0);
    const [one, two] = await look(first, second);
    expect(one?.config).not.toBeNull();
    expect(two?.config).toEqual(one?.config);
    const told = (await oomtune.json(['explain', second])) as { launches: { purpose: string }[] };
    expect(told.launches.map((launch) => launch.purpose)).toEqual(['run']);
    expect((await oomtune.call(['explain', second])).stdout).toContain('No search was needed');
    const story = (await oomtune.call(['explain', first])).stdout;
    expect(story).toMatch(/micro-batch \d+: fit, peak/);
    // What fills the memory is told of a search and, by what it recorded, of a job that needed none
    const filled = /What fills the memory at micro-batch \d+ \(.* of 60 MiB\):\n.*│\n +█ parameters +3.3 MiB/;
    expect(story).toMatch(filled);
    expect((await oomtune.call(['explain', second])).stdout).toMatch(filled);
    expect((await oomtune.call(['explain', 'reused'])).stdout).toMatch(filled);
    const [searched, reused] = ((await oomtune.json(['status', first, second])) as { jobs: { memory: unknown }[] })
      .jobs;
    expect(memory.parse(searched?.memory).micro_batch).toBe(one?.config?.micro_batch);
    expect(memory.omit({ curve: true }).parse(reused?.memory)).toEqual(
      memory.omit({ curve: true }).parse(searched?.memory),
    );
  });

  it('a reader that goes away ends status in silence', async () => {
    const { child, ended } = oomtune.start(['status', '--watch']);
    child.stdout.once('data', () => child.stdout.destroy());
    const { code, stderr } = await ended;
    expect(code).toBe(0);
    expect(stderr).toBe('');
  });

  it('devices tells each one with what is reserved', async () => {
    const told = devices.parse(await oomtune.json(['devices']));
    expect(told.devices.map((device) => device.id)).toContain('cpu');
  });

  it('doctor finds everything well here', async () => {
    const { code, stdout } = await oomtune.call(['doctor', '--json'], {
      env: { PATH: `/usr/bin:${oomtune.env.PATH}` },
    });
    const told = JSON.parse(stdout) as { ok: boolean; checks: { check: string; status: string }[] };
    expect(told.checks.filter((check) => check.status === 'failed')).toEqual([]);
    expect(told.checks.map((check) => check.check)).toEqual(
      expect.arrayContaining(['node', 'native', 'redis', 'torch', 'daemon']),
    );
    expect({ ok: told.ok, code }).toEqual({ ok: true, code: 0 });
  });

  it('doctor ends with 5 when something will not work, and names the remedy', async () => {
    const { code, stdout } = await oomtune.call(['doctor', '--redis', 'redis://127.0.0.1:1']);
    expect(code).toBe(5);
    expect(stdout).toMatch(/✗ redis .*127\.0\.0\.1:1[^\n]*\n +→ \S/);
  });

  it.each(['logs -f', 'wait', 'status --watch'])('Ctrl-C ends %s in silence and leaves the job alone', async (verb) => {
    const job = await submit(...PLAIN, '--', 'sleep', '303');
    const running = async () => (await look(job))[0]?.state === 'running';
    await vi.waitFor(async () => expect(await running()).toBe(true), { timeout: 60_000, interval: 100 });
    const { child, ended } = oomtune.start([...verb.split(' '), job]);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect({ code, stderr }).toEqual({ code: 130, stderr: '' });
    expect(await running()).toBe(true);
    await oomtune.call(['cancel', job]);
  });

  it('status --watch ends by a signal with its code', async () => {
    const { child, ended } = oomtune.start(['status', '--watch']);
    await new Promise((resolve) => child.stdout.once('data', resolve));
    child.kill('SIGTERM');
    expect((await ended).code).toBe(143);
  });

  it('stop --kill leaves nothing', async () => {
    await submit(...PLAIN, '--', 'sleep', '302');
    await vi.waitFor(() => expect(oomtune.leftovers().join()).toMatch(/\d sleep 302/), {
      timeout: 60_000,
      interval: 100,
    });
    expect((await oomtune.call(['daemon', 'stop', '--kill'])).code).toBe(0);
    // what held the daemon's lock goes a moment after the daemon
    await vi.waitFor(() => expect(oomtune.leftovers()).toEqual([]), { timeout: 20_000 });
    expect(await oomtune.json(['daemon', 'status'])).toMatchObject({ running: false });
  });
});
