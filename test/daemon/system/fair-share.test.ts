import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { job, options } from '../../store/samples.js';
import { Machine, noUsers, type User } from './machine.js';

/** What users may have of a machine is the daemon's to say, whatever their clients do. */
describe.skipIf(noUsers !== null)('fair share among real users', () => {
  let machine: Machine;
  let alice: User;
  let bob: User;
  let admin: User;
  const rules = join(mkdtempSync(join(tmpdir(), 'oomtune-share-')), 'fair-share.yaml'); // its folder is closed to them

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    bob = machine.user();
    admin = machine.user([machine.adminGroup]);
    writeFileSync(rules, `half_life: 24h\nusers: {${bob.name}: {queued: 2, gpus: 1}}\n`);
    await machine.start([], { OOMTUNE_FAIR_SHARE: rules });
  });
  afterAll(() => machine.close());

  const stored = async (id: string) => (await (await machine.store()).jobs.get(id))?.options;
  /** Sends a record as no client of ours would. */
  const forged = (user: User, record: object) =>
    user.script(`
      import { connect } from 'node:net';
      const socket = connect(${JSON.stringify(machine.socket)});
      socket.setEncoding('utf8').on('data', (text) => {
        process.stdout.write(text);
        if (text.includes('\\n')) socket.destroy();
      });
      socket.write(JSON.stringify({ id: 1, call: 'jobs.create', args: [${JSON.stringify(record)}] }) + '\\n');
    `);

  it('a priority orders its owner’s jobs alone, unless an administrator gave it', async () => {
    const priority = ['--priority', '7'];
    expect(await stored(await alice.submit(['true'], priority))).toMatchObject({ priority: 7, acrossUsers: false });
    expect(await stored(await admin.submit(['true'], priority))).toMatchObject({ priority: 7, acrossUsers: true });
    const mine = job({ command: ['true'], options: options({ priority: 9, acrossUsers: true, cwd: alice.home }) });
    const said = await forged(alice, mine);
    expect(await stored(mine.job), said.stdout + said.stderr).toMatchObject({ priority: 9, acrossUsers: false });
    const waits = await alice.submit(['true'], ['--after-any', await alice.submit(['sleep', '30'])]);
    await alice.call(['edit', waits, '--priority', '3']);
    expect(await stored(waits)).toMatchObject({ priority: 3, acrossUsers: false });
    await admin.call(['edit', waits, '--priority', '-3']);
    expect(await stored(waits)).toMatchObject({ priority: -3, acrossUsers: true });
    await alice.call(['cancel', '*']);
  });

  it('limits hold whatever a client believes them to be', async () => {
    const first = await bob.submit(['sleep', '30']);
    const after = ['--after-any', first];
    for (let n = 0; n < 2; n += 1) await bob.submit(['true'], after);
    const refused = await bob.call(['submit', '--device', 'cpu', '--preset', 'none', ...after, '--', 'true']);
    expect([refused.code, refused.stderr]).toEqual([5, expect.stringContaining('OOMTUNE_LIMIT')]);
    const many = job({ options: options({ device: 'cuda', gpus: 2, cwd: bob.home }) });
    expect((await forged(bob, many)).stdout).toContain('OOMTUNE_LIMIT');
    expect(await stored(many.job)).toBeUndefined();
    expect(await alice.submit(['true'])).toMatch(/^j-/);
    await bob.call(['cancel', '*']);
  });

  it('what each has used is told to all', async () => {
    await alice.call(['wait', await alice.submit(['sleep', '1'])]);
    const { users } = await bob.json<{ users: { user: string; device_seconds: number }[] }>(['status', '--users']);
    expect(users.find(({ user }) => user === alice.name)?.device_seconds).toBeGreaterThanOrEqual(0);
    expect((await bob.call(['status', '--users'])).stdout).toContain(alice.name);
  });
});
