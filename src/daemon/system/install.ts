import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { OomtuneError, usageError } from '../../common/errors.js';
import { findExecutable } from '../../common/executable.js';
import { PACKAGE_ROOT } from '../../common/home.js';

const UNITS = '/etc/systemd/system';
const NAME = 'oomtune.service';
/** systemd-notify's own look: the folder is there where systemd is the init. */
const BOOTED = '/run/systemd/system';
const BY_HAND =
  'docs/guides/a-server-for-a-lab.md tells the way by hand; `oomtune daemon install --system --print` prints the unit.';

/** The unit with the paths of this installation. */
export function systemUnit(adminGroup: string): string {
  const values: Record<string, string> = {
    NODE: process.execPath,
    PACKAGE: PACKAGE_ROOT.replace(/\/$/, ''),
    GROUP: adminGroup,
  };
  const draft = readFileSync(join(PACKAGE_ROOT, 'deploy', 'systemd', 'oomtune-system.service'), 'utf8');
  const text = draft.slice(draft.indexOf('[Unit]'));
  return `# Written by \`oomtune daemon install --system\`.\n${text.replace(/@(NODE|PACKAGE|GROUP)@/g, (_, name) => values[name] ?? '')}`;
}

/** Writes the unit and makes the group; nothing is started. Returns what was done, a line each. Throws OOMTUNE_USAGE with the way by hand. */
export function installUnit(adminGroup: string): string[] {
  if (process.getuid?.() !== 0) throw usageError('Only root can install a daemon for all users.', BY_HAND);
  if (!existsSync(BOOTED)) throw usageError('systemd does not run this machine.', BY_HAND);
  for (const program of ['setpriv', 'flock', 'redis-server']) checkThere(program);
  const hidden = hiddenFolder(PACKAGE_ROOT);
  if (hidden !== null) {
    throw usageError(
      `Other users cannot enter ${hidden}, where oomtune is installed: their jobs could not start.`,
      'Install it for all: npm install --global oomtune, as root.',
    );
  }
  const path = join(UNITS, NAME);
  const done: string[] = [];
  if (spawnSync('getent', ['group', adminGroup]).status !== 0) {
    run('groupadd', ['--system', adminGroup]);
    done.push(
      `made the group ${adminGroup}: its members steer everybody's jobs (usermod --append --groups ${adminGroup} NAME)`,
    );
  }
  const unit = systemUnit(adminGroup);
  const before = existsSync(path) ? readFileSync(path, 'utf8') : null;
  if (before === unit) done.push(`${path} stands as it has to`);
  else if (before !== null && !before.startsWith('# Written by `oomtune'))
    throw usageError(`${path} was written by somebody else.`, `Move it away first. ${BY_HAND}`);
  else {
    writeFileSync(path, unit, { mode: 0o644 });
    done.push(`wrote ${path}`);
  }
  run('systemctl', ['daemon-reload']);
  done.push('start it, now and at each boot: systemctl enable --now oomtune');
  return done;
}

/** The first folder on the way that others cannot enter; null: none. */
export function hiddenFolder(path: string): string | null {
  if ((statSync(path).mode & 0o001) === 0) return path;
  return path === '/' ? null : hiddenFolder(dirname(path));
}

function checkThere(program: string): void {
  if (findExecutable(program, process.env) !== null) return;
  throw new OomtuneError(
    'OOMTUNE_COMMAND_MISSING',
    `The program ${program} is not installed.`,
    'sudo apt-get install -y util-linux redis-server',
  );
}

function run(program: string, args: string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  if (status === 0) return;
  const why = error?.message ?? stderr.trim();
  throw new OomtuneError('OOMTUNE_COMMAND_MISSING', `${program} ${args.join(' ')} failed: ${why}.`, BY_HAND);
}
