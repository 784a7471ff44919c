import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { Probe } from '../../contract/measurement.js';
import { type Rung, sameRung } from '../../contract/rung.js';
import { prepareDiagnosis } from '../diagnosis/index.js';
import { launchSearch, SEARCH_SECONDS } from '../launch/launch.js';
import type { Session } from '../launch/session.js';
import { foretellingEnvironment, type Hooking, type HookMode } from '../launch/session-request.js';
import { StillRunning } from '../launch/still-running.js';
import { EXPANDABLE_SEGMENTS } from '../memory/allocator.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import type { LoopFacts } from './loop-facts.js';

/** The processes of a search, one at a time: starts of the command and forks of them. */
export class Processes {
  /** Those of an earlier process of ours included. */
  readonly launches: WorkRequest['launches'];
  /** How the next start is hooked. */
  readonly hook: Hooking;
  /** The live one; null: there is none. */
  session: Session | null = null;
  /** Processes so far, starts and forks. */
  lives: number;
  /** Probes of the live process. */
  used = 0;
  /** The live process can take no more. */
  spent = false;
  /** A process ran out of memory before the script had made an optimizer. */
  unmade = false;
  /** The rung of its last probe. */
  rung: Rung | null = null;
  /** How the current launch was started; `probe` null: without one. */
  #started: { rung: Rung; expandable: boolean; probe: Probe | null } | null = null;
  /** The live process has expandable segments. */
  #expandable = false;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly facts: LoopFacts,
    /** A job that has failed, whose spare may wait: the first process is a fork of that. */
    private spare: Session | null,
  ) {
    const drives = request.knob === undefined && target.carrier('micro_batch') === 'hook';
    this.hook = {
      mode: drives ? 'probe' : target.listens ? 'measure' : 'none',
      steps: request.options.steps,
      forks: (request.options.fork ?? true) && target.worldSize === 1,
    };
    this.launches = [...request.launches];
    this.lives = Math.max(0, ...request.journal.map(({ life, launch }) => life ?? launch));
  }

  get mode(): HookMode {
    return this.hook.mode;
  }

  /** Whether the live process can run it. */
  takes(probe: Probe): boolean {
    const live = this.session;
    const from = this.rung;
    if (live === null || from === null || this.spent || this.#expandable !== (probe.expandable_segments ?? false))
      return false;
    // A process that died before its first probe answers for that probe.
    const free = this.used === 0 || (live.exit === null && !probe.fresh);
    if (this.mode === 'probe') return free && this.#reaches(from, probe.rung);
    return free && sameRung(from, probe.rung) && this.used > 0;
  }

  /** Whether a process that runs on one rung can go on to the other. */
  #reaches(from: Rung, to: Rung): boolean {
    return sameRung(from, to) || (this.facts.loop?.can.switch_rung === true && this.target.canSwitch(from, to));
  }

  /** Begins a process: another life of the launch, or a new launch. */
  async begin(probe: Probe, first: Probe | null = probe): Promise<void> {
    const expandable = probe.expandable_segments ?? false;
    const { renewable } = this;
    const life = await this.#renew(probe, expandable);
    if (life === null) {
      if (renewable) this.deps.log.debug({ probe, lives: this.lives }, 'no fork of the launch suits or came: a start');
      await this.close();
      return this.open(probe.rung, expandable, first);
    }
    this.#process(life, probe.rung, expandable);
    this.deps.progress({ type: 'life', launch: this.launches.length, life: life.life, why: probe.why });
    if (this.mode !== 'probe') return;
    await life.ready();
    this.deps.log.debug({ life: this.lives, seconds: life.startupSeconds }, 'a fork came to its training loop');
  }

  /** Whether the next process can be a fork of the current launch. */
  get renewable(): boolean {
    const { session, hook, facts } = this;
    if (hook.forks !== true || this.#started === null || session?.renewable !== true) return false;
    return this.mode === 'measure' ? session.arguments !== null : facts.loop !== null;
  }

  /** Null: the launch does not suit, or cannot be forked. */
  async #renew(probe: Probe, expandable: boolean): Promise<Session | null> {
    const { session } = this;
    const started = this.#started;
    if (session === null || started === null || !this.renewable) return null;
    if (started.expandable && !expandable) return null;
    const env = expandable && !started.expandable ? EXPANDABLE_SEGMENTS : {};
    if (this.mode !== 'measure') return this.#reaches(started.rung, probe.rung) ? session.renew(env) : null;
    if (started.probe === null || !sameRung(started.rung, probe.rung)) return null;
    const other = await this.#othersWords(started.probe, probe, session.arguments ?? []);
    return other && session.renew({ ...other.env, ...env, ...foretellingEnvironment(probe) }, other.words);
  }

  /**
   * What a fork of a launch for one probe needs in order to be a start for another: the last `words` of the command, and variables. Null: more
   * than these differ, or nothing does that the script reads after the fork.
   */
  async #othersWords(
    from: Probe,
    to: Probe,
    words: readonly string[],
  ): Promise<{ words: string[]; env: Record<string, string> } | null> {
    const { target } = this;
    const launch = this.launches.at(-1);
    if (launch === undefined) return null;
    const [now, then] = [target.configOf(from), target.configOf(to)];
    const before = await target.fill(now, launch.dir, launch.launch);
    const after = await target.fill(then, launch.dir, launch.launch);
    const at = before.argv.length - words.length;
    if (at < 0 || before.argv.length !== after.argv.length || sameWords(before.argv, after.argv)) return null;
    if (!sameWords(before.argv.slice(at), words)) return null;
    if (!sameWords(before.argv.slice(0, at), after.argv.slice(0, at))) return null;
    if (!sameWords(target.hookKnobs(now), target.hookKnobs(then))) return null;
    if (Object.keys(before.env).some((name) => !(name in after.env))) return null;
    return { words: after.argv.slice(at), env: changed(before.env, after.env) };
  }

  #process(session: Session, rung: Rung, expandable: boolean): void {
    this.session = session;
    this.lives += 1;
    this.used = 0;
    this.spent = false;
    this.rung = rung;
    this.#expandable = expandable;
  }

  /** Null: no spare waits, or another start is needed: the search has other words for the command, or its life did not come to train. */
  async #fromSpare(rung: Rung, expandable: boolean): Promise<Session | null> {
    const { spare, target } = this;
    this.spare = null;
    if (!spare?.spared) return null;
    this.session = spare;
    const { dir } = spare.run;
    const launch = this.launches.length;
    const first = { rung, expandable_segments: expandable, micro_batch: 1, accumulation: 1 };
    const [plain, wanted] = [
      await target.fill(null, dir, launch),
      await target.fill(target.configOf(first), dir, launch),
    ];
    const able = sameWords(wanted.argv, plain.argv) && this.hook.forks && this.mode === 'probe';
    const life = able
      ? await spare.search(changed(plain.env, wanted.env), this.request.options.timeoutSeconds ?? SEARCH_SECONDS)
      : null;
    if (life !== null) {
      this.session = life;
      this.deps.progress({ type: 'life', launch, life: this.lives + 1, why: 'to see what the script asks for' });
      if ((await life.ready()) !== null || life.exit?.ended_by === 'timeout') return life;
      this.deps.log.info('a fork of the job did not come to its training loop: the search makes a start of its own');
      // Its own batch ran out of memory while a loader might yet have been asked for one, or an optimizer been made: the start would
      // wait for that as well.
      this.unmade = life.exception?.without_optimizer === true;
      if (life.exception?.waited_for_loader || this.unmade) this.hook.atCall = true;
    }
    await this.close();
    return null;
  }

  /** Starts a process on a rung; if the hook drives, waits for its training loop. */
  async open(rung: Rung, expandable: boolean, probe: Probe | null): Promise<void> {
    const owner = { request: this.request, deps: this.deps, target: this.target, launches: this.launches };
    const life = await this.#fromSpare(rung, expandable);
    const session =
      life ??
      (await launchSearch(owner, {
        hook: this.hook,
        rung,
        expandable,
        probe,
      }));
    this.#started = { rung, expandable, probe };
    this.#process(session, rung, expandable);
    if (this.deps.signal.aborted) session.run.end('cancel');
    if (this.mode !== 'probe') return;
    prepareDiagnosis();
    this.facts.saw(await session.ready());
  }

  /** Waits for the process to end, and ends it and ranks that wait for it if that takes too long. */
  async deathOf(session: Session): Promise<Exit> {
    const leaves = this.mode === 'probe' && session.goodbye !== null;
    if (leaves && session.exception === null && !session.isLife) session.run.end('cancel');
    const timer = setTimeout(() => (leaves || session.exception !== null) && session.run.end('cancel'), 10_000);
    try {
      return this.#whole(session, await session.ended());
    } finally {
      clearTimeout(timer);
    }
  }

  /** Throws if something is left, whose memory the next probe would be charged with. */
  #whole(session: Session, exit: Exit): Exit {
    if (exit.stuck !== undefined) throw new StillRunning(session.run, exit);
    return exit;
  }

  async close(): Promise<void> {
    const session = this.session;
    this.session = null;
    this.#started = null;
    if (session !== null) this.#whole(session, await session.close());
  }

  /** Ends the process without waiting. */
  interrupt(): void {
    this.session?.run.end('cancel');
  }
}

const sameWords = (one: readonly string[], other: readonly string[]): boolean => one.join('\0') === other.join('\0');

/** The variables that another environment has besides, or with other values. */
const changed = (env: Record<string, string>, other: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(other).filter(([name, value]) => env[name] !== value));

/** Errors of forked processes. */
const OF_FORK = /\bfork|initialization error/i;

/** Whether a death may come of the fork: in a later life of all but memory, as the life before it trained. */
export function mayBeOfFork({ isLife, life, exception }: Session, verdict: Diagnosis): boolean {
  if (['device_oom', 'host_oom', 'cancelled'].includes(verdict.class)) return false;
  return life > 1 || (isLife && OF_FORK.test(exception?.message ?? ''));
}
