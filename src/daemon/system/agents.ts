import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { PACKAGE_ROOT } from '../../common/home.js';
import type { Log } from '../../common/log.js';
import { waitAtMost } from '../../common/within.js';
import { HandsLost } from '../hands.js';
import { AGENT_ERRORS } from './agent-errors.js';
import { Channel, ChannelClosed, type OnCall } from './channel.js';
import type { Homes } from './homes.js';
import type { Peers } from './peer.js';
import { userGroup } from './user-group.js';

/** What a user's own variables would be at a login, as far as a job from a shell that is gone needs them. */
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** Settings of the daemon that hold for its agents, too. */
const HANDED = ['OOMTUNE_HOST', 'OOMTUNE_NATIVE', 'OOMTUNE_CUDA_DRIVER', 'OOMTUNE_NVML_DRIVER'] as const;
const HANDED_TIMES = [
  'OOMTUNE_END_SECONDS',
  'OOMTUNE_GRACE_SECONDS',
  'OOMTUNE_START_SECONDS',
  'OOMTUNE_RESTART_SECONDS',
] as const;
/** Of what an agent writes to its stderr, the end is kept. */
const MOST_SAID = 8192;
const MOST_BYTES = 64 * 1024 ** 2;
const START_MS = 60_000;

/** Calls of agents, answered for one user. */
export type AgentCalls = (
  uid: number,
  job: string,
  name: string,
  args: unknown[],
  call: Parameters<OnCall>[2],
) => Promise<unknown>;

interface Running {
  channel: Channel;
  child: ChildProcess;
  ready: Promise<unknown>;
  /** Calls that it answers now. */
  calls: number;
  /** Was asked for something since it was last told to tidy. */
  used: boolean;
  tidies: boolean;
  ends: boolean;
}

/** The agents, one for each user who has jobs: started when first needed, with that user's rights and nothing of root's environment. */
export class Agents {
  readonly #running = new Map<number, Running>();
  #closed = false;

  constructor(
    private readonly parts: {
      peers: Peers;
      homes: Homes;
      calls: AgentCalls;
      /** What clients know the daemon's store by. */
      url: string;
      log: Log;
    },
  ) {}

  /** Throws HandsLost, or what the agent says. */
  async call<T>(uid: number, name: string, args: unknown[], onNote: (value: unknown) => void = () => {}): Promise<T> {
    let agent: Running | null = null;
    try {
      agent = this.#of(uid);
      agent.calls += 1;
      await agent.ready;
      return await agent.channel.call<T>(name, args, { onNote });
    } catch (error) {
      throw error instanceof ChannelClosed ? new HandsLost(error.message, !this.#closed) : error;
    } finally {
      if (agent !== null) {
        agent.calls -= 1;
        agent.used = true;
      }
    }
  }

  /** Has each remove what jobs of its user left on the disk, and ends those that had nothing to do since the last time. `due`: users for whom one is started for it. */
  async tidy(due: number[], tidied: (uid: number) => void): Promise<void> {
    const tidy = async (uid: number, agent: Running) => (await this.#tidy(uid, agent)) && tidied(uid);
    for (const [uid, agent] of this.#running) if (!agent.tidies) void tidy(uid, agent);
    for (const uid of due) {
      if (this.#closed || this.#running.has(uid)) continue;
      try {
        const agent = this.#of(uid);
        agent.used = false;
        await waitAtMost(tidy(uid, agent), START_MS); // one at a time, and whoever stops theirs keeps nobody from it
      } catch (error) {
        this.parts.log.warn({ err: error, uid }, 'the agent of a user cannot be started to tidy');
      }
    }
  }

  /** It may be stopped by its user, and answer never. Whether it was done. */
  async #tidy(uid: number, agent: Running): Promise<boolean> {
    const log = this.parts.log.child({ uid, agent: agent.child.pid });
    const { used } = agent;
    agent.used = false;
    agent.tidies = true;
    let done = false;
    try {
      await agent.ready;
      await agent.channel.call('tidy', [this.parts.url]);
      done = true;
    } catch (error) {
      log.warn({ err: error }, 'what the jobs of a user left on the disk could not be tidied');
    }
    agent.tidies = false;
    if (used || agent.used || agent.calls > 0 || agent.channel.closed) return done;
    log.info('the agent of a user has nothing to do, and ends');
    agent.ends = true;
    agent.channel.close();
    return done;
  }

  /** Lets go of what they run; they end by themselves. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const { channel } of this.#running.values()) channel.close();
  }

  #of(uid: number): Running {
    const known = this.#running.get(uid);
    if (known !== undefined) return known;
    if (this.#closed) throw new HandsLost('the daemon ends', false);
    const child = this.#spawn(uid);
    const log = this.parts.log.child({ uid, agent: child.pid });
    let said = '';
    let running: Running | null = null;
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-MOST_SAID);
    });
    child.on('error', (error) => log.error({ err: error }, 'an agent cannot be started'));
    child.on('exit', (code, signal) => {
      if (code !== 0 && !this.#closed && running?.ends !== true)
        log.warn({ code, signal, said }, 'the agent of a user has ended');
      channel.close();
    });
    const channel = new Channel(child.stdio[3] as Duplex, {
      errors: AGENT_ERRORS,
      mostBytes: MOST_BYTES,
      mostCalls: 1000,
      onCall: (name, args, call) => this.parts.calls(uid, String(args[0]), name, args.slice(1), call),
      onClose: (why) => {
        if (why !== null) log.warn({ why: why.message }, 'the agent of a user was cut off');
        this.#running.delete(uid);
        child.kill('SIGKILL'); // its supervisors hold the jobs
      },
    });
    const timer = setTimeout(() => channel.close(new Error('it does not start')), START_MS).unref();
    const ready = channel.call('hello', []).finally(() => clearTimeout(timer));
    ready.catch(() => {});
    running = { channel, child, ready, calls: 0, used: true, tidies: false, ends: false };
    this.#running.set(uid, running);
    log.info('the agent of a user was started');
    return running;
  }

  #spawn(uid: number): ChildProcess {
    const account = this.parts.peers.account(uid);
    const home = this.parts.homes.of(account);
    const { name, gid } = account;
    const env: Record<string, string> = { PATH, HOME: account.home, USER: name, LOGNAME: name, SHELL: account.shell };
    env.LANG = 'C.UTF-8';
    for (const key of [...HANDED, ...HANDED_TIMES]) if (process.env[key] !== undefined) env[key] = process.env[key];
    const become = ['--reuid', String(uid), '--regid', String(gid), '--init-groups', '--inh-caps=-all', '--'];
    const program = [process.execPath, join(PACKAGE_ROOT, 'bin', 'oomtune.js'), '__agent', home];
    const child = spawn('setpriv', [...become, ...program], {
      cwd: '/',
      env,
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      detached: true, // a Ctrl-C at the daemon's terminal is not for it
    });
    if (child.pid !== undefined) userGroup(account, child.pid, this.parts.log);
    return child;
  }
}
