import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { openStore, type Store } from '../../../src/store/index.js';
import { PROGRAM } from '../../cli/oomtune.js';
import { ROOT, until } from '../../store/home.js';

/** Why real users cannot be made here; null: they can. */
export const noUsers: string | null =
  process.getuid?.() !== 0
    ? 'only root can make users and become them'
    : spawnSync('useradd', ['--help']).error || spawnSync('setpriv', ['--version']).error
      ? 'useradd or setpriv is not installed'
      : hiddenFolder(ROOT) !== null
        ? `other users cannot enter ${hiddenFolder(ROOT)}, where this checkout is`
        : null;
if (noUsers !== null) process.stderr.write(`SKIPPED: the daemon for several users is not tested: ${noUsers}\n`);

function hiddenFolder(path: string): string | null {
  if ((statSync(path).mode & 0o005) !== 0o005) return path;
  return path === '/' ? null : hiddenFolder(dirname(path));
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface CallOptions {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Runs this instead of oomtune. */
  program?: string[];
  stdin?: string;
}

let users = 0;

/** A real user of this machine, who is gone when the test is. */
export class User {
  readonly name: string;
  readonly uid: number;
  readonly home: string;

  constructor(
    private readonly machine: Machine,
    groups: string[] = [],
  ) {
    users += 1;
    this.name = `oomt${process.pid}x${users}`;
    const more = groups.length > 0 ? ['--groups', groups.join(',')] : [];
    system('useradd', ['--create-home', '--user-group', ...more, this.name]);
    this.uid = Number(system('id', ['-u', this.name]));
    this.home = join('/home', this.name);
    chmodSync(this.home, 0o700);
  }

  start(args: string[], { env = {}, cwd = this.home, program = [PROGRAM] }: CallOptions = {}): ChildProcess {
    const become = ['--reuid', this.name, '--regid', this.name, '--init-groups', '--'];
    return spawn('/usr/bin/setpriv', [...become, ...program, ...args], {
      cwd,
      env: {
        PATH: process.env.PATH,
        HOME: this.home,
        USER: this.name,
        LANG: 'C.UTF-8',
        OMP_NUM_THREADS: '1',
        OOMTUNE_SYSTEM_SOCKET: this.machine.socket,
        ...env,
      },
    });
  }

  async call(args: string[], options: CallOptions = {}): Promise<Ended> {
    return ended(this.start(args, options), options.stdin);
  }

  async json<T>(args: string[], options: CallOptions = {}): Promise<T> {
    const { stdout, stderr } = await this.call([...args.slice(0, 1), '--json', ...args.slice(1)], options);
    try {
      return JSON.parse(stdout) as T;
    } catch {
      throw new Error(`no JSON from ${args.join(' ')}: ${stdout}\n${stderr}`);
    }
  }

  /** Submits and returns the job's id. */
  async submit(command: string[], options: string[] = [], how: CallOptions = {}): Promise<string> {
    const plain = ['--device', 'cpu', '--budget', '200MiB', '--preset', 'none', '--retries', '0'];
    const { code, stdout, stderr } = await this.call(['submit', ...plain, ...options, '--', ...command], how);
    if (code !== 0) throw new Error(`not submitted: ${stderr}`);
    return stdout.trim();
  }

  /** A program of this user's, as a Node script on the daemon's socket or anything else. */
  async script(source: string, how: CallOptions = {}): Promise<Ended> {
    return this.call(['--input-type=module', '-'], { ...how, program: [process.execPath], stdin: source });
  }

  remove(): void {
    spawnSync('pkill', ['-KILL', '-U', String(this.uid)]);
    spawnSync('userdel', ['--remove', '--force', this.name]);
  }
}

export async function ended(child: ChildProcess, stdin = ''): Promise<Ended> {
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  child.stdin?.on('error', () => {});
  child.stdin?.end(stdin);
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, stdout, stderr })));
}

function system(program: string, args: string[]): string {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}

/** A machine with one daemon for all of its users, at paths of its own. */
export class Machine {
  readonly root = mkdtempSync(join(tmpdir(), 'oomtune-system-'));
  readonly socket = join(this.root, 'run', 'oomtune.sock');
  readonly home = join(this.root, 'lib');
  readonly adminGroup = `oomg${process.pid}`;
  readonly users: User[] = [];
  daemon: ChildProcess | null = null;
  said = '';
  #store: Store | null = null;

  constructor() {
    chmodSync(this.root, 0o755);
    mkdirSync(join(this.root, 'run'), { mode: 0o755 });
    system('groupadd', [this.adminGroup]);
  }

  user(groups: string[] = []): User {
    const user = new User(this, groups);
    this.users.push(user);
    return user;
  }

  get environment(): NodeJS.ProcessEnv {
    return {
      PATH: process.env.PATH,
      HOME: '/root',
      LANG: 'C.UTF-8',
      OOMTUNE_SYSTEM_SOCKET: this.socket,
      OOMTUNE_SYSTEM_HOME: this.home,
    };
  }

  async start(options: string[] = [], env: NodeJS.ProcessEnv = {}): Promise<ChildProcess> {
    const argv = ['daemon', 'run', '--system', '--admin-group', this.adminGroup, '--http-port', '0'];
    const child = spawn(PROGRAM, [...argv, '--cpu-lanes', '4', ...options], {
      env: { ...this.environment, ...env },
    });
    this.daemon = child;
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.said += text;
      });
    await until(async () => child.exitCode !== null || (await this.answers()), 30);
    if (child.exitCode !== null) throw new Error(`the daemon did not start: ${this.said}`);
    return child;
  }

  answers(): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connect(this.socket, () => resolve(true));
      socket.on('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
  }

  /** Ends the daemon as systemd does; jobs go on. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.daemon;
    this.daemon = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await gone;
  }

  /** The daemon's own Redis, as root reaches it. */
  async store(): Promise<Store> {
    this.#store ??= await openStore({ url: `unix://${join(this.home, 'daemon', 'redis', 'redis.sock')}` });
    return this.#store;
  }

  /** The daemon's socket, as root, for what no client of ours would send. */
  connect(): Socket {
    return connect(this.socket);
  }

  async close(): Promise<void> {
    await this.#store?.close();
    await this.stop();
    const own = { env: { ...this.environment, OOMTUNE_HOME: join(this.home, 'daemon') } };
    await ended(spawn(PROGRAM, ['redis', 'stop'], own));
    for (const user of this.users) user.remove();
    spawnSync('groupdel', [this.adminGroup]);
    rmSync(this.root, { recursive: true, force: true });
  }

  logOf(job: string, user: User, launch = 1): string {
    return join(this.home, 'users', String(user.uid), 'runs', job, String(launch), 'log');
  }

  textOf(job: string, user: User, launch = 1): string {
    return readFileSync(this.logOf(job, user, launch), 'utf8');
  }
}
