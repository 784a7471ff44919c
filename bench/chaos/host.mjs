// One host: a home, and a daemon that is started again whenever it ends.
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export const kill = (pid, signal) => {
  if (!Number.isInteger(pid) || pid <= 1) return false;
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
};

export class Host {
  starts = 0;
  /** Where the daemon's stderr goes: `log`, `full` (a device without room) or `closed` (a pipe that nobody reads). */
  stderr = 'log';
  #daemon = null;
  /** The daemon is to be away, or there is none any more. */
  #away = false;
  #expected = true;
  #log;

  constructor({ name, home, work, lanes, url, onDeath }) {
    this.name = name;
    this.home = home;
    this.#log = join(work, `${name}.log`);
    this.lanes = lanes;
    this.url = url;
    this.onDeath = onDeath;
    mkdirSync(home, { mode: 0o700, recursive: true });
  }

  get pid() {
    return this.#daemon?.exitCode === null && this.#daemon.signalCode === null ? this.#daemon.pid : null;
  }

  /** The daemon is to end by it. */
  strike(signal) {
    this.#expected = true;
    return kill(this.pid, signal);
  }

  run() {
    this.#away = false;
    if (this.pid !== null) return;
    const settings = {
      cpuLanes: this.lanes,
      sweepMs: 2000,
      heartbeatMs: 1000,
      cancelLookMs: 500,
      renewMs: 5000,
      roomBytes: 32 << 20,
    };
    const full = this.stderr === 'full' ? openSync('/dev/full', 'w') : null;
    const log = full ?? openSync(this.#log, 'a');
    const begin = existsSync(this.#log) ? statSync(this.#log).size : 0;
    this.starts += 1;
    this.#expected = false;
    const daemon = spawn(process.execPath, [join(ROOT, 'test/fixtures/daemon/daemon.mjs'), JSON.stringify(settings)], {
      env: {
        ...{ PATH: process.env.PATH, HOME: this.home, LANG: 'C.UTF-8' },
        ...{ OOMTUNE_HOME: this.home, OOMTUNE_HOST: this.name },
        ...(this.url === null ? {} : { OOMTUNE_REDIS_URL: this.url }),
      },
      stdio: ['ignore', 'ignore', this.stderr === 'closed' ? 'pipe' : log],
    });
    daemon.stderr?.destroy();
    closeSync(log);
    const told = this.stderr === 'log';
    this.#daemon = daemon;
    daemon.once('exit', (code, signal) => {
      this.#tell(code, signal, told ? begin : null);
      if (!this.#away) setTimeout(() => this.#away || this.run(), 300);
    });
  }

  /** One that could not start, as Redis refused it, was never there; one that was ready dies by a fault alone. */
  #tell(code, signal, begin) {
    if (this.#expected) return;
    const said = begin === null ? '' : readFileSync(this.#log).subarray(begin).toString('utf8');
    if (begin !== null && signal === null && !said.includes('"daemon ready"')) return;
    const last = said.trim().split('\n').slice(-2).join(' ').slice(-600);
    this.onDeath(`the daemon of ${this.name} died by itself: ${signal ?? code}: ${last}`);
  }

  /** The daemon ends, and is not started again until `run`. */
  async leave(signal = 'SIGKILL') {
    this.#away = true;
    this.#expected = true;
    const daemon = this.#daemon;
    if (this.pid === null) return;
    const gone = new Promise((resolve) => daemon.once('exit', resolve));
    kill(daemon.pid, 'SIGCONT');
    kill(daemon.pid, signal);
    await gone;
  }

  /** Living processes of this home's jobs: `role` supervisor, keeper or job; `dir` the launch folder, `job` the id. */
  processes() {
    const mark = `${this.home}/runs/`;
    const found = [];
    for (const name of readdirSync('/proc')) {
      if (!/^\d+$/.test(name)) continue;
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'latin1').split(') ').at(-1).split(' ');
        if (stat[0] === 'Z' || stat[0] === 'X') continue;
        const command = readFileSync(`/proc/${name}/cmdline`, 'latin1').split('\0');
        const variable = readFileSync(`/proc/${name}/environ`, 'latin1')
          .split('\0')
          .find((one) => one.startsWith('OOMTUNE_RUN_DIR='));
        const supervises = command[0]?.endsWith('oomtune-supervisor') && command.at(-2)?.startsWith(mark);
        const dir = supervises ? command.at(-2) : variable?.slice('OOMTUNE_RUN_DIR='.length);
        if (!dir?.startsWith(mark)) continue;
        found.push({
          ...{ pid: Number(name), parent: Number(stat[1]), state: stat[0], dir, supervises, host: this },
          job: dir.slice(mark.length).split('/')[0],
        });
      } catch {} // it is gone
    }
    const above = new Set(found.filter((one) => one.supervises).map((one) => one.pid));
    for (const one of found) one.role = !one.supervises ? 'job' : above.has(one.parent) ? 'supervisor' : 'keeper';
    return found;
  }
}
