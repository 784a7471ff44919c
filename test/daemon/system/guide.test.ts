import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROGRAM } from '../../cli/oomtune.js';
import { blocks } from '../../guides/page.js';
import { Machine, noUsers, type User } from './machine.js';

const PAGE = 'docs/guides/a-server-for-a-lab.md';

/** Lines of the page that a test machine cannot have: another init, a package registry, a pager. */
const NOT_HERE = /^(npm install|systemctl|journalctl) /;

describe.skipIf(noUsers !== null)('the guide for a lab, followed line by line', () => {
  let machine: Machine;
  let user: User;
  let bin: string;
  const [install = '', look = '', byHand = '', use = '', everyday = ''] = blocks(PAGE);

  beforeAll(async () => {
    machine = new Machine();
    user = machine.user();
    bin = join(machine.root, 'bin');
    mkdirSync(bin, { mode: 0o755 });
    const program = (name: string, text: string): void => {
      writeFileSync(join(bin, name), text);
      chmodSync(join(bin, name), 0o755);
    };
    program('oomtune', `#!/bin/sh\nexec '${PROGRAM}' "$@"\n`);
    program('python', '#!/bin/sh\necho trained\n');
    await machine.start();
  });
  afterAll(() => machine.close());

  /** Runs the lines as a shell would; throws where one of them fails. */
  const lines = (text: string): string =>
    text
      .split('\n')
      .filter((line) => !NOT_HERE.test(line))
      .join('\n')
      .replaceAll('oomtune-admin', machine.adminGroup)
      .replace(/\balice\b/g, user.name);
  const asRoot = (text: string): string => {
    const env = { ...machine.environment, PATH: `${bin}:/usr/sbin:${process.env.PATH}` };
    const { status, stdout, stderr } = spawnSync('bash', ['-euo', 'pipefail', '-c', text], { encoding: 'utf8', env });
    expect([status, stderr]).toEqual([0, stderr]);
    return stdout + stderr;
  };
  const asUser = async (text: string) => {
    const env = { PATH: `${bin}:${process.env.PATH}` };
    return user.call(['-euo', 'pipefail', '-c', text], { program: ['bash'], env });
  };

  it('has the blocks that are followed here', () => expect(blocks(PAGE)).toHaveLength(5));

  it('is installed as it says', () => {
    // Where systemd does not run, printing the unit stands for writing it
    const done = asRoot(lines(install).replace('install --system ', 'install --system --print '));
    expect(done).toContain('ExecStart=');
    expect(spawnSync('id', ['-nG', user.name], { encoding: 'utf8' }).stdout).toContain(machine.adminGroup);
  });

  it('is there for every user', async () => {
    const { code, stdout } = await asUser(lines(look));
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^running +true$/m)]);
  });

  it('is set up by hand with the same two commands that these tests use', () => {
    expect(byHand.trim().split('\n')).toEqual(['groupadd --system oomtune-admin', 'oomtune daemon run --system']);
    expect(machine.daemon?.spawnargs.join(' ')).toContain('daemon run --system');
  });

  it('is used as it says', async () => {
    const { code, stdout, stderr } = await asUser(lines(use).replace('24GiB', '200MiB --device cpu --preset none'));
    expect([code, stderr]).toEqual([0, stderr]);
    expect(stdout).toContain('trained');
  });

  it('is looked after as it says', async () => {
    const job = await user.submit(['sleep', '600']);
    expect(asRoot(lines(everyday).replace(/j-\w+/, job))).toContain(job);
  });
});
