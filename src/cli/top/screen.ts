import { setTimeout as delay } from 'node:timers/promises';
import type { JobRecord } from '../../contract/job.js';
import { cancelJob, holdJob, pauseJob, releaseJob } from '../../daemon/index.js';
import type { Store } from '../../store/index.js';
import type { Context } from '../context.js';
import { shown } from '../output.js';
import { checkMayRead } from '../system/client.js';
import { showLogs } from '../verbs/logs.js';
import { type Key, Terminal } from './terminal.js';
import { counts, NO_JOBS, renderTopDevices, renderTopJobs, type TopPicture } from './view.js';

const LOOK_MS = 1000;

const KEYS = 'up/down choose  c cancel  h hold or release  p pause or resume  f follow  q quit';

/** The picture that changes, and the keys that steer its jobs. */
export class Screen {
  readonly #terminal: Terminal;
  readonly #end = new AbortController();
  #picture: TopPicture | null = null;
  #chosen: string | null = null;
  /** A job that is cancelled if the next key is y. */
  #asked: string | null = null;
  #said = '';
  #following: AbortController | null = null;
  #follow: JobRecord | null = null;
  #code = 0;

  constructor(
    private readonly store: Store,
    private readonly context: Context,
    private readonly read: () => Promise<TopPicture>,
  ) {
    this.#terminal = new Terminal((key) => this.#onKey(key));
  }

  async run(): Promise<number> {
    const { signal } = this.context;
    const stop = (): void => this.#end.abort();
    const redraw = (): void => this.#draw();
    signal.addEventListener('abort', stop, { once: true });
    process.stdout.on('resize', redraw);
    this.#terminal.listen();
    try {
      this.#picture = await this.read(); // an error of the first look is shown as one
      this.#terminal.take();
      if (signal.aborted) stop();
      while (!this.#end.signal.aborted) {
        if (this.#follow !== null) await this.#followLog(this.#follow);
        this.#draw();
        await delay(LOOK_MS, undefined, { signal: this.#end.signal }).catch(() => {});
        if (!this.#end.signal.aborted) await this.#look();
      }
    } finally {
      process.stdout.off('resize', redraw);
      this.#terminal.giveBack();
    }
    signal.throwIfAborted();
    return this.#code;
  }

  async #look(): Promise<void> {
    try {
      this.#picture = await this.read();
    } catch (error) {
      this.#said = (error as Error).message; // Redis may be away: what was seen last stays
    }
  }

  get #jobs(): JobRecord[] {
    return this.#picture?.jobs ?? [];
  }

  get #job(): JobRecord | null {
    return this.#jobs.find(({ job }) => job === this.#chosen) ?? null;
  }

  #draw(): void {
    const picture = this.#picture;
    if (picture === null || this.#following !== null) return;
    if (this.#job === null) this.#chosen = picture.jobs[0]?.job ?? null;
    const { paint } = this.context.out;
    const rows = process.stdout.rows || 24;
    const head = `${paint('bold', 'oomtune top')}  ${new Date().toLocaleTimeString('en-GB')}  ${counts(picture)}`;
    const foot = lines(this.#said === '' ? KEYS : this.#said);
    const top = [...lines(head), '', ...lines(renderTopDevices(picture, paint)).slice(0, Math.floor(rows / 2)), ''];
    const room = Math.max(1, rows - top.length - foot.length - 1);
    const jobs = this.#jobLines(picture, room);
    const space = Array.from({ length: Math.max(0, rows - top.length - jobs.length - foot.length) }, () => '');
    this.#terminal.draw([...top, ...jobs, ...space, ...foot.map((line) => paint('dim', line))]);
  }

  /** As many jobs as there is room for, with the chosen one among them. */
  #jobLines(picture: TopPicture, room: number): string[] {
    const { paint } = this.context.out;
    const { jobs } = picture;
    if (jobs.length + picture.foreground.length === 0) return lines(NO_JOBS);
    const at = Math.max(
      0,
      jobs.findIndex(({ job }) => job === this.#chosen),
    );
    for (let count = Math.min(jobs.length, room); ; count -= 1) {
      const from = Math.min(Math.max(0, at - Math.floor(count / 2)), Math.max(0, jobs.length - count));
      const some = { ...picture, jobs: jobs.slice(from, from + count) };
      const drawn = lines(renderTopJobs(some, this.#chosen ?? '', paint));
      if (drawn.length <= room || count <= 1) return drawn.slice(0, room);
    }
  }

  #onKey(key: Key): void {
    if (this.#following !== null) {
      if (key.name === 'interrupt' || key.text === 'q') this.#following.abort();
      return;
    }
    if (this.#asked !== null) {
      const job = this.#asked;
      this.#asked = null;
      this.#said = '';
      if (key.text === 'y') this.#steer(job, 'cancelled', () => cancelJob(this.store, job));
      else this.#draw();
      return;
    }
    this.#said = '';
    this.#do(key);
    this.#draw();
  }

  #do(key: Key): void {
    if (key.name === 'interrupt') this.#code = 130;
    if (key.name === 'interrupt' || key.text === 'q') this.#end.abort();
    else if (key.name === 'up' || key.text === 'k') this.#choose(-1);
    else if (key.name === 'down' || key.text === 'j') this.#choose(1);
    else if (this.#job !== null) this.#doTo(this.#job, key);
  }

  #doTo(job: JobRecord, key: Key): void {
    const id = job.job;
    if (key.text === 'c') {
      this.#asked = id;
      this.#said = `Cancel ${id} (${job.name})? y: yes, any other key: no`;
    } else if (key.text === 'h') {
      if (job.state === 'held') this.#steer(id, 'released', () => releaseJob(this.store, id));
      else this.#steer(id, 'held', () => holdJob(this.store, id));
    } else if (key.text === 'p') {
      const wanted = job.pause === 'on' ? 'off' : 'on';
      this.#steer(id, wanted === 'on' ? 'paused' : 'goes on', () => pauseJob(this.store, id, wanted));
    } else if (key.text === 'f' || key.name === 'enter') {
      this.#follow = job;
    }
  }

  #choose(step: number): void {
    const at = this.#jobs.findIndex(({ job }) => job === this.#chosen) + step;
    this.#chosen = this.#jobs[Math.max(0, Math.min(this.#jobs.length - 1, at))]?.job ?? null;
  }

  #steer(job: string, done: string, act: () => Promise<unknown>): void {
    this.#said = `${job}: asked`;
    act()
      .then(() => {
        this.#said = `${job}: ${done}`;
      })
      .catch((error: unknown) => {
        this.#said = (error as Error).message;
      })
      .then(() => this.#look())
      .then(() => this.#draw());
  }

  /** Its output on the usual screen, until it ends or a key is pressed. */
  async #followLog(job: JobRecord): Promise<void> {
    this.#follow = null;
    const following = new AbortController();
    this.#following = following;
    const stop = (): void => following.abort();
    this.#end.signal.addEventListener('abort', stop, { once: true });
    const { note } = this.context.out;
    const write = (data: Buffer | string): void =>
      void process.stdout.write(String(data).replace(/(?<!\r)\n/g, '\r\n'));
    try {
      checkMayRead(await this.context.system(), job);
      this.#terminal.leaveScreen();
      note(`${job.job} (${job.name}): q goes back`);
      await showLogs(this.store, [job], {
        ...{
          follow: true,
          lines: 200,
          launch: null,
          signal: following.signal,
          write,
          terminal: true,
          note,
          paint: this.context.out.paintErr,
        },
      });
      this.#said = `${job.job} has ended.`;
    } catch (error) {
      if (!following.signal.aborted) this.#said = (error as Error).message;
    } finally {
      this.#end.signal.removeEventListener('abort', stop);
      this.#following = null;
      this.#terminal.take();
    }
    if (!this.#end.signal.aborted) await this.#look();
  }
}

const lines = (text: string): string[] => shown(text, process.stdout).split('\n');
