import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { Oomtune, PYTHON } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const script = join(oomtune.home, 'train.py');
writeFileSync(
  script,
  `
import torch, sys
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(2048, 64)), batch_size=512):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
print('it has', sys.argv[1])
sys.exit(int(sys.argv[1]))
`,
);
const run = (code: number, ...more: string[]) =>
  oomtune.call(['run', '--device', 'cpu', ...more, '--', PYTHON, script, String(code)]);
const explain = async (...words: string[]) => (await oomtune.call(['explain', ...words])).stdout;

describe('explain of a command in the foreground', () => {
  it('tells how the last one ended, by no name, its script’s and its id', async () => {
    const refused = await run(0, '--budget', '1MiB');
    expect(refused.code).toBe(3);
    const [, id = ''] = /oomtune explain (j-\w+)/.exec(refused.stderr) ?? [];
    const latest = await explain();
    expect(latest).toContain(id);
    expect(latest).toContain('It was called in the foreground');
    expect(latest).toContain('its budget 1 MiB and its options `--device cpu --budget 1MiB`.');
    expect(latest).toMatch(/^oomtune \d.*, Node \d.*, Python 3\.\d.*, torch \d/m);
    expect(latest).toMatch(/Nothing fits, even the smallest batch[\s\S]*remedy: Give a larger --budget/);
    expect(await explain('train')).toContain(id);
    const { stdout } = await oomtune.call(['explain', id, '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ job: id, state: 'exhausted', failure: { class: 'device_oom' } });
    expect(JSON.parse(stdout)).toMatchObject({
      folder: oomtune.home,
      options: ['--device', 'cpu', '--budget', '1MiB'],
      budget_bytes: 2 ** 20,
    });

    const failed = await run(7, '--no-tune');
    expect(failed.code).toBe(7);
    const [, log = ''] = /Its output is in (.*)\./.exec(await explain()) ?? [];
    expect(readFileSync(log, 'utf8')).toContain('it has 7');
    expect(await explain()).toContain('It failed');
    expect(await explain(id)).toContain('Nothing fits');
  });

  it('tells of a recorded configuration by its name, and names the last command beside it', async () => {
    expect((await run(0)).code).toBe(0);
    const { stdout, stderr } = await oomtune.call(['explain', 'train']);
    expect(stdout).toContain('The largest micro-batch that fits is 512');
    expect(stderr).toMatch(/note: j-\w+, .* in the foreground, succeeded: `oomtune explain j-\w+`/);
    expect(await explain('@')).toContain('It succeeded');
  });

  it('tells of one with variables of its own by their names: their values are in no record', async () => {
    const words = ['run', '--device', 'cpu', '--no-tune', '--name', 'variable', '--env', 'TOKEN=hunter2'];
    expect((await oomtune.call([...words, '--', 'true'])).code).toBe(0);
    expect(await explain('variable')).toContain('options `--name variable --env TOKEN --device cpu --no-tune`');
    for (const name of readdirSync(join(oomtune.home, 'runs'), { recursive: true, encoding: 'utf8' })) {
      const path = join(oomtune.home, 'runs', name);
      if (statSync(path).isFile()) expect(readFileSync(path, 'utf8'), name).not.toContain('hunter2');
    }
  });

  it('tells the time limit that one reached, and its remedy', async () => {
    const job = ['--device', 'cpu', '--no-tune', '--time', '1s', '--', 'sleep', '60'];
    const { code, stderr } = await oomtune.call(['run', '--name', 'late', ...job]);
    expect([code, stderr]).toEqual([4, expect.stringMatching(/its limit of 1s\.[\s\S]*\(OOMTUNE_TIME_LIMIT\)/)]);
    expect(await explain('late')).toMatch(/ran out of time.*, its limit of 1s\.[\s\S]*remedy: Give it more time/);
  });

  it('names the signal that ended a search, as the search itself does', async () => {
    const crash = 'import torch, os, signal; os.kill(os.getpid(), signal.SIGSEGV)';
    const search = ['find-batch', '--name', 'crash', '--device', 'cpu', '--budget', '300MiB'];
    const { stderr } = await oomtune.call([...search, '--', PYTHON, '-c', crash]);
    expect(stderr).toMatch(/not for want of memory: user_error\. It crashed in native code \(SIGSEGV\)/);
    expect(await explain('crash')).toMatch(/cause: It crashed in native code \(SIGSEGV\)[\s\S]*remedy: .*faulthandler/);
  });

  it('tells the notes that were printed', async () => {
    const caught = ['-c', 'try:\n  bytearray(2**29)\nexcept MemoryError:\n  print("caught")'];
    const options = ['--name', 'noted', '--device', 'cpu', '--budget', '100MiB', '--no-tune'];
    const { code, stderr } = await oomtune.call(['run', ...options, '--', PYTHON, ...caught]);
    const [note = ''] = /note: Memory was refused.*/.exec(stderr) ?? [];
    expect([code, note]).toEqual([0, expect.stringContaining('all the same')]);
    expect(await explain('noted')).toContain(`\n\n${note}\n`);
    const { stdout } = await oomtune.call(['explain', 'noted', '--json']);
    expect(JSON.parse(stdout).notes).toEqual([note.replace('note: ', '')]);
  });

  it('needs no Redis for what a command in the foreground left in its folder', async () => {
    const nowhere = ['--redis', 'redis://127.0.0.1:1'];
    const { code, stdout, stderr } = await oomtune.call(['explain', 'noted', ...nowhere]);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/note: Memory was refused[\s\S]*It succeeded/)]);
    expect(stderr).toMatch(
      /^note: .*127\.0\.0\.1:1.* What it knows of queued jobs and of configurations is left out\.$/m,
    );
    const nothing = await oomtune.call(['explain', 'nothing', ...nowhere]);
    expect([nothing.code, nothing.stderr]).toEqual([5, expect.stringContaining('OOMTUNE_REDIS_UNREACHABLE')]);
  });

  it.each([
    ['run', /ran out of time: --timeout ended it at its limit of 1s\.\n.*by --timeout, or let it write checkpoints/],
    [
      'find-batch',
      /launch of the search ran out of time: --timeout ended it at its limit of 1s\.\n.*by --timeout: a launch/,
    ],
  ])('tells that --timeout ended a launch of %s', async (verb, says) => {
    const job = verb === 'run' ? ['--no-tune', '--time', '1h', '--', 'sleep'] : ['--', 'sleep', '6{micro_batch}'];
    const options = ['--name', `late-${verb}`, '--device', 'cpu', '--budget', '99MiB', '--timeout', '1'];
    const { code, stderr } = await oomtune.call([verb, ...options, ...job, ...(verb === 'run' ? ['60'] : [])]);
    expect([code, stderr]).toEqual([4, expect.stringMatching(says)]);
    expect(stderr).toContain('(OOMTUNE_TIME_LIMIT)');
    expect(stderr).not.toContain('SIGTERM');
  });

  it('says of one that was killed that it was', async () => {
    const job = ['--device', 'cpu', '--no-tune', '--', 'sh', '-c', 'sleep 600'];
    const { child, ended } = oomtune.start(['run', '--name', 'killed', ...job]);
    await vi.waitFor(async () => expect(await explain('killed')).toContain('and runs on'), {
      timeout: 60_000,
      interval: 200,
    });
    child.kill('SIGKILL');
    await ended;
    await vi.waitFor(
      async () =>
        expect(await explain('killed')).toMatch(
          /It failed .*\. oomtune itself was killed, or its machine went down, and what it had launched was ended with it\. What it printed is in \/.*\/1\/log\./,
        ),
      { timeout: 20_000, interval: 500 },
    );
  });

  it('says of a job that was over before its oomtune was killed how it ended', async () => {
    const job = ['--device', 'cpu', '--no-tune', '--', 'sh', '-c', 'sleep 600'];
    for (const [name, code] of Object.entries({ well: 0, ill: 7 })) {
      const { child, ended } = oomtune.start(['run', '--name', name, ...job]);
      await vi.waitFor(async () => expect(await explain(name)).toContain('and runs on'), {
        timeout: 60_000,
        interval: 200,
      });
      child.kill('SIGKILL');
      await ended;
      const folder = join(
        oomtune.home,
        'runs',
        JSON.parse((await oomtune.call(['explain', name, '--json'])).stdout).job,
      );
      const exit = { schema: 1, code, signal: null, ended_by: 'job', error: null, host_oom: false, stragglers: 0 };
      const at = new Date().toISOString();
      await vi.waitFor(() => readFileSync(join(folder, '1', 'exit.json')), { timeout: 20_000, interval: 200 });
      writeFileSync(join(folder, '1', 'exit.json'), JSON.stringify({ ...exit, started_at: at, ended_at: at }));
      const told = await explain(name);
      expect(told).toMatch(
        code === 0
          ? /It succeeded .* ago\. oomtune itself was killed/
          : /It failed .* ago: user_error \(exit code 7\)\./,
      );
      expect(told).toContain(`before it had recorded that. What it printed is in ${join(folder, '1', 'log')}`);
    }
  });

  it('has its output shown by logs, and the other verbs say where it ran', async () => {
    const job = ['--device', 'cpu', '--no-tune', '--', 'sh', '-c', 'echo one; echo two; exit 3'];
    expect((await oomtune.call(['run', '--name', 'talks', ...job])).code).toBe(3);
    const { job: id } = JSON.parse((await oomtune.call(['explain', 'talks', '--json'])).stdout);
    expect(await oomtune.call(['logs', id])).toMatchObject({ code: 0, stdout: 'one\ntwo\n' });
    expect((await oomtune.call(['logs', '-f', '-n', '1', 'talks'])).stdout).toBe('two\n');
    for (const verb of ['status', 'wait', 'retry', 'cancel']) {
      const { code, stderr } = await oomtune.call([verb, id]);
      expect(code).toBe(6);
      expect(stderr).toContain(`"${id}" is no job of the queue: it ran in the foreground (failed).`);
      expect(stderr).toContain(`\`oomtune explain ${id}\` tells how it went, \`oomtune logs ${id}\` shows`);
      expect(stderr).toContain(join(oomtune.home, 'runs', id, '1', 'log'));
    }
  });

  it('has its output followed while it runs', async () => {
    const job = ['--device', 'cpu', '--no-tune', '--', 'sh', '-c', 'echo one; sleep 4; echo two'];
    const { ended } = oomtune.start(['run', '--name', 'longer', ...job]);
    await vi.waitFor(async () => expect(await explain('longer')).toContain('and runs on'), {
      timeout: 60_000,
      interval: 200,
    });
    expect(await oomtune.call(['logs', '-f', 'longer'])).toMatchObject({ code: 0, stdout: 'one\ntwo\n' });
    await ended;
  });

  it('does not mind what else lies in the folder of the runs', async () => {
    const folder = join(oomtune.home, 'runs', 'j-other');
    mkdirSync(folder);
    for (const text of ['', '{', '{"process": 1}', '\0']) {
      writeFileSync(join(folder, 'job.json'), text);
      expect(await explain('killed')).toContain('oomtune itself was killed');
    }
    const { code, stderr } = await oomtune.call(['explain', 'j-other']);
    expect(code).toBe(5);
    expect(stderr).toContain(`The record of j-other cannot be read: ${join(folder, 'job.json')} is damaged`);
    expect((await oomtune.call(['explain', 'nothing'])).stderr).toContain('OOMTUNE_NO_SUCH_JOB');
  });
});
