import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toJobOptions } from '../../src/cli/job-options.js';
import { createProgram } from '../../src/cli/program.js';
import type { JobOptions } from '../../src/contract/options.js';
import { repeatCommand } from '../../src/daemon/http/repeat.js';
import { useHome } from '../store/home.js';
import { options } from '../store/samples.js';
import { type Lab, startLab } from './lab.js';

useHome();
let lab: Lab;
let dashboard: Lab['dashboard'];
let world: Lab['world'];
let browser: Lab['browser'];
let page: Page;

beforeAll(async () => {
  lab = await startLab();
  ({ dashboard, world, browser } = lab);
  page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  await page.getByRole('heading', { name: 'Devices' }).waitFor();
});
afterAll(() => lab?.close());

async function open(name: string): Promise<void> {
  const record = world.records.find((one) => one.name === name);
  await page.goto(`${dashboard.url}#/jobs/${record?.job}`);
  await page.getByRole('heading', { level: 1, name }).waitFor();
  await page.locator('.facts dd:visible').first().waitFor();
}
const fact = async (name: string) => page.locator(`.facts div:has(dt:text-is("${name}")) dd`).innerText();
const line = async (name: string) => page.locator(`.lines div:has(dt:text-is("${name}")) dd`).innerText();

describe("a job's page", () => {
  it('tells how far a running job is and when it ends, and its speed as the ladder has it', async () => {
    await open('vit-b16-in21k');
    const rate = page.locator('.ladder tbody tr[data-outcome="fit"]').last().locator('td').nth(6);
    expect(await fact('Speed')).toBe(`${await rate.innerText()}\nsamples/s in the search`);
    expect(await fact('Speed now')).toBe('2,384\nsamples/s');
    expect(await fact('Progress')).toMatch(/^24 min left\nends at \d\d:\d\d, step 52,118$/);
    expect(await fact('Holds now')).toBe('131 GiB');
    expect(await fact('Owner')).toBe('bob');
    expect(await line('Folder')).toBe('/home/bob/vit-b16-in21k');
    expect(await line('Launches')).toBe(
      [
        '1 to 3: search, 9 sizes',
        '4: runs at micro-batch 600 × 2',
        '5: runs at micro-batch 564 × 2, stepped down from 600',
      ].join('\n'),
    );
    expect(await page.locator('.lines code').last().innerText()).toBe(
      'oomtune submit --name vit-b16-in21k --cwd /home/bob/vit-b16-in21k --device cuda -- python train.py --data /data/set',
    );
  });

  it('says that at most so many fit only where the next size was tried', async () => {
    const { recommendations } = dashboard.store;
    const [found] = await recommendations.list();
    if (found === undefined) throw new Error('there is none');
    await open('vit-b16-in21k');
    for (const [bad, words] of [
      [565, 'at most 564 fits'],
      [578, '564 fits, 578 does not'],
      [null, '564 fits, none larger was tried'],
    ] as const) {
      await recommendations.put({ ...found, known_bad_micro_batch: bad }, null);
      await page.getByText(words, { exact: true }).waitFor();
    }
  });

  it('has a scale of whole numbers for sizes, and one unit for all of the memory', async () => {
    await open('vit-b16-in21k');
    // What is drawn on a canvas is told by whoever draws it
    await page.evaluate(() => {
      const { fillText } = CanvasRenderingContext2D.prototype;
      const drawn: string[] = [];
      (window as unknown as { drawn: string[] }).drawn = drawn;
      CanvasRenderingContext2D.prototype.fillText = function draw(text, ...rest) {
        drawn.push(text);
        fillText.call(this, text, ...rest);
      };
    });
    await page.emulateMedia({ colorScheme: 'dark' }); // drawn anew
    await page.waitForFunction(() => (window as unknown as { drawn: string[] }).drawn.length > 12);
    const drawn = await page.evaluate(() => (window as unknown as { drawn: string[] }).drawn);
    const sizes = drawn.filter((text) => /^[\d.,]+$/.test(text));
    expect(sizes.length).toBeGreaterThan(4);
    expect(sizes.filter((text) => !/^\d+$/.test(text))).toEqual([]);
    const units = drawn.flatMap((text) => /^[\d.]+ ([KMGT]?i?B)$/.exec(text)?.[1] ?? []);
    expect(units.length).toBeGreaterThan(6);
    expect([...new Set(units)]).toEqual(['GiB']);
    await page.emulateMedia({ colorScheme: 'light' });
  });

  it('tells of a job that waits its place, what it waits for, and takes a change', async () => {
    await open('resnet50-lr-2.2');
    expect(await fact('Queue')).toBe('4th\nin the queue');
    expect(await line('Waits for')).toBe('vit-b16-in21k (running, to succeed)');
    await page.getByRole('button', { name: /^Edit j-/ }).click();
    const dialog = page.getByRole('dialog', { name: /^Edit j-/ });
    await dialog.getByLabel(/^Priority/).fill('99');
    await dialog.getByLabel(/^Time limit/).fill('4h');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await page.locator('.facts dd', { hasText: '1st' }).waitFor();
    expect(await fact('Priority')).toBe('99');
    expect(await page.locator('.lines code').last().innerText()).toBe(
      'oomtune submit --name resnet50-lr-2.2 --cwd /home/alice/experiments --device cuda --priority 99 --time 4h ' +
        `--after ${world.records[1]?.job} -- python train.py --lr {lr} '--note=it'\\''s new'`,
    );
    expect(browser.complaints).toEqual([]);
  });
});

describe('the command that repeats a job', () => {
  /** The options that the command line makes of it. */
  async function parsed(argv: string[]): Promise<{ options: JobOptions; command: string[] }> {
    const at = argv.indexOf('--');
    const command = argv.slice(at + 1);
    let given: Record<string, unknown> = {};
    const program = createProgram(async ({ options }) => {
      given = options;
    }, command);
    await program.parseAsync(argv.slice(1, at), { from: 'user' });
    return { options: toJobOptions(given, command), command };
  }

  const plain = options({ device: null, budget: null, preset: 'auto', tune: true, retries: 2, cwd: '/tmp' });
  const command = ['python', 'train.py', '--batch-size', '{micro_batch}', '--', '-x'];

  it.each<[string, Partial<JobOptions>]>([
    ['nothing but a folder', {}],
    [
      'what it asks for',
      {
        name: 'train',
        device: 'cuda',
        budget: '24GiB',
        gpus: 4,
        exclusive: true,
        gpuModel: 'H200',
        host: 'box',
        labels: ['rack=b'],
      },
    ],
    [
      'its batch and knobs',
      {
        effectiveBatch: 512,
        minBatch: 2,
        maxBatch: 64,
        amp: 'bf16',
        checkpointing: 'on',
        accumulation: 'off',
        cut: 'loader',
        chunkedLoss: 'off',
        objective: 'throughput',
      },
    ],
    ['its limit of tokens', { microBatchTokens: 4096 }],
    [
      'its search',
      { headroomPct: 5, preset: 'none', steps: 5, fork: false, timeoutSeconds: 90, maxLaunches: 7, exact: true },
    ],
    [
      'its place in the queue',
      {
        priority: -3,
        timeSeconds: 5400,
        after: ['j-abcdef'],
        afterAny: ['j-ghijkl'],
        share: true,
        shareAuto: true,
        retries: 0,
        resumeArg: '--resume',
        env: ['WANDB_PROJECT'],
      },
    ],
  ])('has %s', async (_, changes) => {
    const wanted = { ...plain, ...changes };
    const argv = repeatCommand({ options: wanted, command, slurm: null });
    const read = await parsed(argv);
    expect(read.command).toEqual(command);
    const told = (all: JobOptions) =>
      Object.fromEntries(
        Object.entries({ cut: 'auto', chunkedLoss: 'auto', fork: true, restart: false, ...all }).filter(
          ([, value]) => value !== null && value !== undefined,
        ),
      );
    expect(told(read.options)).toEqual(told(wanted));
  });
});
