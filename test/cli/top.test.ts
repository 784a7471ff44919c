import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { width } from '../../src/cli/output.js';
import { keysIn } from '../../src/cli/top/terminal.js';
import { progress, renderTopDevices, type TopPicture } from '../../src/cli/top/view.js';
import { openStore, type Store } from '../../src/store/index.js';
import { until } from '../store/home.js';
import { gpu, job, options } from '../store/samples.js';
import { Oomtune, PROGRAM } from './oomtune.js';

const oomtune = new Oomtune();
let store: Store;
const first = job({ name: 'first', submitted_at: '2026-11-01T10:00:00.000Z' });
const second = job({ name: 'second', submitted_at: '2026-11-01T10:01:00.000Z' });

beforeAll(async () => {
  process.env.OOMTUNE_HOME = oomtune.home;
  store = await openStore({});
  await store.jobs.create(first);
  await store.jobs.create(second);
});
afterAll(async () => {
  await store.close();
  await oomtune.close();
});

const ENTERS = '\u001b[?1049h\u001b[?25l';
const LEAVES = '\u001b[?25h\u001b[?1049l';

/** `top` in a real terminal, by script(1), with what stty says before and after. */
class Session {
  readonly #child;
  #text = '';
  readonly ended: Promise<void>;
  #files: string;
  static #count = 0;

  constructor(columns: number, env: NodeJS.ProcessEnv = {}) {
    Session.#count += 1;
    this.#files = join(oomtune.home, `stty-${Session.#count}`);
    const stty = (name: string): string => `stty -a > ${this.#files}.${name}`;
    const line = `stty cols ${columns} rows 24; ${stty('before')}; '${PROGRAM}' top; echo "code $?"; ${stty('after')}`;
    this.#child = spawn('script', ['-qfec', line, '/dev/null'], {
      env: { ...oomtune.env, TERM: 'xterm', ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.#text += text;
    });
    this.ended = new Promise((resolve) => this.#child.once('close', () => resolve()));
  }

  get text(): string {
    return this.#text;
  }

  /** The picture drawn last. */
  get screen(): string {
    return stripVTControlCharacters((this.#text.split('\u001b[H').at(-1) ?? '').split('\u001b[J')[0] ?? '');
  }

  async shows(what: string | RegExp): Promise<void> {
    await until(() => this.screen.match(what) !== null, 30).catch(() => {
      throw new Error(`${what} is not shown: ${this.screen}`);
    });
  }

  press(keys: string): void {
    this.#child.stdin.write(keys);
  }

  /** The process itself, behind script and its shell. */
  pid(): number {
    const found = readdirSync('/proc').filter((name) => {
      if (!/^\d+$/.test(name)) return false;
      try {
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
        const ours = readFileSync(`/proc/${name}/environ`, 'utf8').includes(`HOME=${oomtune.home}`);
        return ours && command.includes('top') && command.some((word) => word.endsWith('oomtune.js'));
      } catch {
        return false;
      }
    });
    return Number(found[0]);
  }

  async expectLeft(code: number): Promise<void> {
    await until(() => /code \d+\r*\n/.test(this.#text), 30);
    this.#child.stdin.end(); // script(1) may wait for it
    await this.ended;
    expect(this.#text).toContain(`code ${code}`);
    expect(readFileSync(`${this.#files}.after`, 'utf8')).toBe(readFileSync(`${this.#files}.before`, 'utf8'));
    expect(this.#text.split(ENTERS).length).toBe(this.#text.split(LEAVES).length);
    expect(this.#text.lastIndexOf(LEAVES)).toBeGreaterThan(this.#text.lastIndexOf(ENTERS));
  }
}

const script = existsSync('/usr/bin/script');
if (!script) console.warn('Skipped: top on a terminal, as script(1) is not installed (apt-get install bsdutils).');

it.skipIf(!script)('shows devices and jobs, and steers the chosen one by keys', async () => {
  const top = new Session(100);
  await top.shows(/DEVICE +MODEL[\s\S]*cpu [\s\S]*> +j-\w+ +first +queued/);
  top.press('\u001b[B');
  await top.shows(/> +j-\w+ +second +queued/);
  top.press('h');
  await top.shows(/> +j-\w+ +second +held/);
  top.press('h');
  await top.shows(/> +j-\w+ +second +queued/);
  top.press('c');
  await top.shows(`Cancel ${second.job} (second)?`);
  top.press('n');
  await top.shows('q quit');
  expect((await store.jobs.get(second.job))?.state).toBe('queued');
  top.press('cy');
  await top.shows(/> +j-\w+ +second +cancelled/);
  expect((await store.jobs.get(second.job))?.state).toBe('cancelled');
  top.press('kf'); // follows the first, which has written nothing, and comes back
  await until(() => top.text.includes(`${first.job} (first): q goes back`), 20);
  top.press('q');
  await until(() => top.text.split(ENTERS).length === 3, 20); // the picture is back
  await top.shows(/> +j-\w+ +first +queued/);
  top.press('q');
  await top.expectLeft(0);
});

it.skipIf(!script)('leaves the terminal as it was on Ctrl-C, and no line is too long at 60 columns', async () => {
  const top = new Session(60);
  await top.shows('first');
  for (const line of top.screen.split(/\r*\n/)) expect(width(line)).toBeLessThanOrEqual(60);
  top.press('\u0003');
  await top.expectLeft(130);
});

it.skipIf(!script)('leaves the terminal as it was on SIGTERM, and shows ASCII only under LC_ALL=C', async () => {
  const top = new Session(80, { LC_ALL: 'C' });
  await top.shows('first');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
  expect(top.screen).toMatch(/^[\x00-\x7f]*$/);
  process.kill(top.pid(), 'SIGTERM');
  await top.expectLeft(143);
});

it('prints once where there is no terminal, and has one document', async () => {
  const { code, stdout, stderr } = await oomtune.call(['top']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(/^DEVICE[\s\S]*\n\nJOB[\s\S]*first/);
  expect(stdout).not.toContain('\u001b');
  expect(await oomtune.json(['top', '--name', 'first'])).toMatchObject({ schema: 1, jobs: [{ name: 'first' }] });
});

it('tells how busy, hot and hungry a device is where its driver does, and who holds it', () => {
  const device = {
    ...gpu(0),
    model: 'NVIDIA H200',
    fault: null,
    utilisation_pct: 97,
    temperature_c: 61,
    power_w: 402.4,
    reserved_bytes: 2 ** 30,
  };
  const holder = { job: first.job, owner: 'alice', host: 'here', bytes: 2 ** 30 };
  const picture = { devices: [{ ...device, holders: [holder] }], jobs: [first], foreground: [], expected: new Map() };
  const text = renderTopDevices(picture as unknown as TopPicture, (_style, words) => words);
  expect(text).toMatch(/BUSY +TEMP +POWER/);
  expect(text).toMatch(/cuda:0.* 97 % +61 °C +402 W .* first$/);
});

it('tells the progress of a job by its probes, by what its like took, or by its time limit', () => {
  const minuteAgo = new Date(Date.now() - 60_000).toISOString();
  const running = { state: 'running' as const, started_at: minuteAgo };
  expect(progress(job({ state: 'searching' }), null)).toBe('starting');
  expect(progress(job(running), null)).toBe('-');
  expect(progress(job(running), 240)).toBe('25 % of about 4m');
  expect(progress(job({ ...running, options: options({ timeSeconds: 120 }) }), null)).toBe('50 % of at most 2m');
  expect(progress(job(running), 30)).toBe('99 % of about 30s');
});

it('reads keys however they come', () => {
  expect(keysIn('j\u001b[A\u001bOBq\u001b[5~\r').map(({ name, text }) => (name === 'text' ? text : name))).toEqual([
    ...['j', 'up', 'down', 'q', 'enter'],
  ]);
});
