import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PYTHON } from '../../cli/oomtune.js';
import { until } from '../../store/home.js';
import { ended, Machine, noUsers, type User } from './machine.js';

const PLAIN = ['--device', 'cpu', '--budget', '300MiB'];

/** A way to the machine's daemon that passes on what is said, as another daemon would answer it. */
async function passing(
  machine: Machine,
  user: User,
  /** `loses`: of which submission or retry the answer is lost. `leaves`: nobody answers after that. `lacks`: a call that the daemon does not know. `steps`: whether it takes the step of a call. */
  {
    loses = 0,
    leaves = false,
    lacks = '',
    steps = true,
  }: Partial<Record<'leaves' | 'steps', boolean>> & { loses?: number; lacks?: string },
): Promise<{ env: NodeJS.ProcessEnv; close: () => void }> {
  const socket = join(user.home, `passing-${loses}-${leaves}-${steps}.sock`);
  const script = `
    import { connect, createServer } from 'node:net';
    let sent = 0;
    createServer((client) => {
      let isLost = false;
      const daemon = connect(${JSON.stringify(machine.socket)});
      for (const end of [client, daemon]) end.on('error', () => {});
      daemon.on('close', () => client.destroy());
      client.on('close', () => daemon.destroy());
      client.on('data', (asked) => {
        if (/"call":"jobs.(create|retry)"/.test(asked)) isLost = ++sent === ${loses};
        const passed = String(asked).replace('"call":"${lacks}"', '"call":"later.${lacks}"');
        // one argument more than is known
        daemon.write(${steps} ? passed : passed.replace(/,"[0-9a-f]{16}"]/, (step) => step.slice(0, -1) + ',null]'));
      });
      daemon.on('data', (said) => {
        if (!isLost) client.write(said);
        else if (${leaves}) process.exit();
        else client.destroy();
      });
    }).listen(${JSON.stringify(socket)});`;
  const child = user.start(['--input-type=module', '-'], { program: [process.execPath] });
  child.stdin?.end(script);
  await until(() => existsSync(socket), 30);
  return { env: { OOMTUNE_SYSTEM_SOCKET: socket }, close: () => child.kill() };
}

describe.skipIf(noUsers !== null)('on a machine whose daemon ends and comes back', () => {
  let machine: Machine;
  let alice: User;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    await machine.start();
  });
  afterAll(() => machine.close());

  /** What runs in the foreground is not lost with the daemon, however that ends. */
  describe('foreground commands whose daemon is killed and started again', () => {
    const leases = async (): Promise<number> => (await (await machine.store()).leasing.list()).length;
    const go = async (): Promise<void> => {
      expect((await alice.call([join(alice.home, 'go')], { program: ['touch'] })).code).toBe(0);
    };

    it('train on under their lease, which ends with them', async () => {
      const begun = join(alice.home, 'begun');
      const wait = `touch ${begun}; while ! [ -e ${alice.home}/go ]; do sleep 0.1; done; echo trained`;
      const command = ended(alice.start(['run', '--no-tune', ...PLAIN, '--', 'sh', '-c', wait]));
      await until(() => existsSync(begun), 60);
      await machine.stop('SIGKILL');
      await machine.start();
      expect(await leases()).toBe(1);
      await go();
      const { code, stdout, stderr } = await command;
      expect([code, stdout, stderr]).toEqual([0, 'trained\n', expect.stringContaining('was restarted meanwhile')]);
      await until(async () => (await leases()) === 0, 60);
    });

    it('record what they find at the next daemon', async () => {
      await alice.call([join(alice.home, 'go')], { program: ['rm'] });
      const script = join(machine.root, 'train.py');
      const begun = join(alice.home, 'searching');
      writeFileSync(
        script,
        'import os, time\nimport torch\nfrom torch.utils.data import DataLoader, TensorDataset\n' +
          `open('${begun}', 'w').close()\nwhile not os.path.exists('${alice.home}/go'):\n    time.sleep(0.1)\n` +
          'data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))\nmodel = torch.nn.Linear(64, 1)\n' +
          'optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n' +
          'for x, y in DataLoader(data, batch_size=64):\n' +
          '    loss = ((model(x) - y) ** 2).mean()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n',
      );
      const find = ['find-batch', ...PLAIN, '--name', 'restarted', '--max-batch', '256', '--', PYTHON, script];
      const command = ended(alice.start(find, { env: { OOMTUNE_PYTHON: PYTHON } }));
      await until(() => existsSync(begun), 60);
      await machine.stop('SIGKILL');
      await go();
      await machine.start();
      const { code, stderr } = await command;
      expect([code, stderr]).toEqual([0, expect.stringContaining('was restarted meanwhile')]);
      const known = await alice.json<{ recommendations: unknown[] }>(['recommend', 'restarted']);
      expect(known.recommendations).toMatchObject([{ owner: alice.name }]);
      await until(async () => (await leases()) === 0, 60);
    });

    it('and jobs wait until its Redis takes what they have found', async () => {
      const script = join(machine.root, 'short.py');
      writeFileSync(
        script,
        'import time, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n' +
          'model = torch.nn.Linear(64, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n' +
          'for (x,) in DataLoader(TensorDataset(torch.randn(2048, 64)), batch_size=64):\n' +
          '    optimizer.zero_grad()\n    model(x).mean().backward()\n    optimizer.step()\n    time.sleep(0.05)\n',
      );
      const { redis } = (await machine.store()).connection;
      const given = [...PLAIN, '--max-batch', '256'];
      const env = { OOMTUNE_PYTHON: PYTHON };
      const child = alice.start(['find-batch', '--json', ...given, '--name', 'waits', '--', PYTHON, script], { env });
      let said = '';
      child.stderr?.on('data', (text) => {
        said += text;
      });
      const command = ended(child);
      await until(() => said.includes('fit'), 60);
      await redis.config('SET', 'min-replicas-to-write', '1');
      await until(() => said.includes('it has too few replicas to write'), 60);
      await redis.config('SET', 'min-replicas-to-write', '0');
      expect(await command).toMatchObject({ code: 0 });
      expect((await (await machine.store()).recommendations.find('waits')).length).toBe(1);

      const id = (
        await alice.call(['submit', ...given, '--effective-batch', '64', '--name', 'job', '--', PYTHON, script], {
          env,
        })
      ).stdout.trim();
      const { jobs, recommendations } = await machine.store();
      await until(async () => ((await jobs.get(id))?.journal.length ?? 0) > 0, 90);
      await redis.config('SET', 'min-replicas-to-write', '1');
      await new Promise((resolve) => setTimeout(resolve, 8000));
      await redis.config('SET', 'min-replicas-to-write', '0');
      await until(async () => (await jobs.get(id))?.ended_at != null, 90);
      expect(await jobs.get(id)).toMatchObject({ state: 'succeeded' });
      expect((await recommendations.find('job')).length).toBe(1);
    }, 240_000);
  });

  describe('verbs whose daemon is another meanwhile', () => {
    const submit = ['submit', ...PLAIN, '--preset', 'none'];
    const ids = async (name: string): Promise<string[]> =>
      (await (await machine.store()).jobs.list()).filter((job) => job.name.startsWith(name)).map(({ job }) => job);

    it('know a job again of which the answer was lost: it is queued once, and told', async () => {
      const { env, close } = await passing(machine, alice, { loses: 2 });
      const sweep = [...submit, '--name', 'once', '--array', '1-3', '--', 'true'];
      const { code, stdout, stderr } = await alice.call(sweep, { env });
      close();
      expect([code, stderr]).toEqual([0, expect.not.stringContaining('OOMTUNE_')]);
      expect(stdout.trim().split('\n').sort()).toEqual((await ids('once')).sort());
      expect(await ids('once')).toHaveLength(3);
    });

    it('know a retry again of which the answer was lost: it runs once more, and is told', async () => {
      const ran = join(alice.home, 'ran');
      const job = await alice.submit(['sh', '-c', `echo once >> ${ran}`]);
      expect((await alice.call(['wait', job])).code).toBe(0);
      const { env, close } = await passing(machine, alice, { loses: 1 });
      const { code, stdout, stderr } = await alice.call(['retry', job], { env });
      close();
      expect([code, stdout.trim(), stderr]).toEqual([0, job, expect.not.stringContaining('OOMTUNE_')]);
      expect((await alice.call(['wait', job])).code).toBe(0);
      expect(await (await machine.store()).jobs.get(job)).toMatchObject({ state: 'succeeded', epoch: 2 });
      expect(readFileSync(ran, 'utf8')).toBe('once\nonce\n');
    });

    it('name a job that may be queued where the daemon does not come back, and the others of its sweep', async () => {
      const { env } = await passing(machine, alice, { loses: 2, leaves: true });
      const sweep = [...submit, '--name', 'doubtful', '--array', '1-3', '--', 'true'];
      const job = await alice.submit(['true']);
      expect((await alice.call(['wait', job])).code).toBe(0);
      const { env: gone } = await passing(machine, alice, { loses: 1, leaves: true });
      const [{ code, stderr }, retried] = await Promise.all([
        alice.call(sweep, { env }),
        alice.call(['retry', job], { env: gone }),
      ]);
      expect([retried.code, retried.stderr]).toEqual([5, expect.stringContaining(`${job} may be queued again.`)]);
      expect(await (await machine.store()).jobs.get(job)).toMatchObject({ epoch: 2 });
      expect([code, stderr]).toEqual([5, expect.stringContaining('OOMTUNE_DAEMON_DOWN')]);
      const there = await ids('doubtful');
      expect(there).toHaveLength(2);
      for (const job of there) expect(stderr).toContain(job);
      expect(stderr).toMatch(/A job may be queued as j-\w+\..*either: j-\w+\./s);
    }, 90_000);

    it('show jobs beside a daemon of before an upgrade, which cannot tell whether its Redis takes writes', async () => {
      const { env, close } = await passing(machine, alice, { lacks: 'refusalOfWrites' });
      const job = await alice.submit(['sleep', '300'], [], { env });
      for (const args of [['status'], ['status', job], ['explain', job]]) {
        const { code, stderr } = await alice.call(args, { env });
        expect([code, stderr], args.join(' ')).toEqual([0, '']);
      }
      close();
      expect((await alice.call(['cancel', job])).code).toBe(0);
    });

    it('retry a job beside a daemon of before an upgrade, which knows no steps', async () => {
      const { env, close } = await passing(machine, alice, { steps: false });
      const job = await alice.submit(['true']);
      expect((await alice.call(['wait', job])).code).toBe(0);
      const { code, stdout, stderr } = await alice.call(['retry', job], { env });
      close();
      expect([code, stdout.trim(), stderr]).toEqual([0, job, expect.not.stringContaining('OOMTUNE_')]);
      expect((await alice.call(['wait', job])).code).toBe(0);
      expect(await (await machine.store()).jobs.get(job)).toMatchObject({ state: 'succeeded', epoch: 2 });
    });
  });
});
