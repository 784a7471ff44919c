import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formatBytes } from '../../src/common/size.js';
import { findBatch } from './contract.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const MIB = 1024 ** 2;
const TINY = join(ROOT, 'test', 'fixtures', 'worker', 'tiny.py');
/** Weights of test/fixtures/worker/tiny.py in fp32; SGD with momentum keeps as much again. */
const WEIGHTS = 4 * (64 * 16384 + 16384 + 16384 * 64 + 64 + 64 * 4 + 4);
const OPTIONS = ['--device', 'cpu', '--budget', '60MiB', '--name', 'tiny'];

describe('find-batch --plot', () => {
  const file = join(oomtune.home, 'memory.svg');
  let report: ReturnType<typeof findBatch.parse>;
  let svg: string;

  beforeAll(async () => {
    report = findBatch.parse(await oomtune.json(['find-batch', ...OPTIONS, '--plot', file, '--', PYTHON, TINY]));
    svg = readFileSync(file, 'utf8');
  });

  it('takes the peak of the recommended size apart to the byte', () => {
    const { memory, config } = report;
    if (memory === null) throw new Error('no memory');
    expect(memory.micro_batch).toBe(config?.micro_batch);
    expect(memory.peak_bytes).toBe(report.peak_bytes);
    expect(memory.peak_in).toBe('forward_backward');
    expect([memory.parameters, memory.gradients, memory.optimizer_state]).toEqual([WEIGHTS, WEIGHTS, WEIGHTS]);
    expect([memory.allocator_slack, memory.context]).toEqual([null, null]);
    const { parameters, gradients, optimizer_state, activations, rest } = memory;
    const parts = [parameters, gradients, optimizer_state, activations, rest].map((bytes) => bytes ?? 0);
    expect(parts.reduce((a, b) => a + b)).toBe(memory.peak_bytes);
    // Two activations of 64 KiB and a gradient of one: 192 KiB a sample, and little beside. It is the slope of a line
    // through peaks, which what the threads hold at that moment moves by some hundred KiB.
    expect(memory.activations_per_sample).toBeGreaterThan(188 * 1024);
    expect(memory.activations_per_sample).toBeLessThan(200 * 1024);
    expect(rest).toBeLessThan(8 * MIB);
  });

  it('gives the curve with every size that was tried', () => {
    const { memory, probes } = report;
    const sizes = (outcome: string) => [
      ...new Set(probes.filter((probe) => probe.outcome === outcome).map((probe) => probe.micro_batch)),
    ];
    const ascending = (a: number, b: number): number => a - b;
    expect(memory?.curve.fits.map((fit) => fit.micro_batch)).toEqual(sizes('fit').sort(ascending));
    expect(memory?.curve.out_of_memory).toEqual(sizes('device_oom').sort(ascending));
    const line = memory?.curve.prediction;
    const last = memory?.curve.fits.at(-1);
    const predicted = (line?.base_bytes ?? 0) + (line?.bytes_per_sample ?? 0) * (last?.micro_batch ?? 0);
    expect(Math.abs(predicted - (last?.peak_bytes ?? 0))).toBeLessThan(MIB);
  });

  it('draws it all as one SVG document that needs nothing else', () => {
    const { memory } = report;
    if (memory === null) throw new Error('no memory');
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" viewBox="0 0 800 \d+"/);
    expect(svg.match(/<circle class="(fit|used)"[^>]*><title>/g)).toHaveLength(memory.curve.fits.length);
    expect(svg.match(/<path class="oom"[^>]*><title>/g) ?? []).toHaveLength(memory.curve.out_of_memory.length);
    expect(svg).toContain(`<title>micro-batch ${memory.micro_batch}: ${formatBytes(memory.peak_bytes)}</title>`);
    for (const text of [
      'micro-batch (samples)',
      'peak memory',
      'budget 60 MiB',
      'prediction',
      'prefers-color-scheme: dark',
    ])
      expect(svg).toContain(text);
    for (const part of ['parameters', 'gradients', 'optimizer state', 'activations', 'the rest', 'free'])
      expect(svg).toMatch(new RegExp(`>${part} [0-9.]+ [KM]?i?B, `));
    expect(svg).not.toMatch(/NaN|Infinity|undefined|href|url\(/);
  });

  it('draws nothing outside the picture', () => {
    const numbers = [...svg.matchAll(/ (x|x1|x2|cx|y|y1|y2|cy|width|height)="([^"]+)"/g)];
    expect(numbers.length).toBeGreaterThan(50);
    const [, height] = /viewBox="0 0 800 (\d+)"/.exec(svg) ?? [];
    for (const [, name, value] of numbers) {
      expect(Number(value)).toBeGreaterThanOrEqual(0);
      expect(Number(value)).toBeLessThanOrEqual(/^(x|c?x[12]?|width)$/.test(name ?? '') ? 800 : Number(height));
    }
  });

  it('shows the bar and the curve to a person, without a file', async () => {
    const { code, stdout } = await oomtune.call(['find-batch', ...OPTIONS, '--max-batch', '64', '--', PYTHON, TINY]);
    expect(code).toBe(0);
    // which size is recommended depends on how fast each ran
    expect(stdout).toMatch(/memory at micro-batch \d+\n +█+▓+▒+▚+·* *│\n/);
    expect(stdout).toMatch(/█ parameters +8\.06 MiB +13\.4 %/);
    expect(stdout).toMatch(/▚ activations .* a sample\)/);
    expect(stdout).toMatch(/60 MiB ┤.*╌/);
    expect(stdout).toMatch(/●/);
    expect(stdout).toMatch(/[\u2801-\u28ff]{2}/);
  });

  it.each([
    ['memory.gif', /ends in \.svg or \.png, got "memory\.gif"/],
    ['memory', /ends in \.svg or \.png/],
    ['no/such/folder/memory.svg', /cannot be written \(ENOENT\)/],
  ])('refuses %s before anything is started', async (name, words) => {
    const { code, stderr, stdout } = await oomtune.call(['find-batch', '--plot', name, ...OPTIONS, '--', PYTHON, TINY]);
    expect(code).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toMatch(words);
    expect(stderr).not.toContain('launch 1');
  });

  it('draws the same as PNG, for what shows no SVG', async () => {
    const file = join(oomtune.home, 'memory.png');
    await oomtune.call(['find-batch', ...OPTIONS, '--max-batch', '8', '--plot', file, '--', PYTHON, TINY]);
    const bytes = readFileSync(file);
    // Another reader than the one that wrote it
    const look =
      'import sys, struct, zlib\n' +
      'data = open(sys.argv[1], "rb").read()\nassert data[:8] == b"\\x89PNG\\r\\n\\x1a\\n"\n' +
      'at, pixels, names = 8, b"", []\n' +
      'while at < len(data):\n' +
      '    size, name = struct.unpack(">I4s", data[at:at + 8])\n    body = data[at + 8:at + 8 + size]\n' +
      '    assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0]\n' +
      '    names.append(name.decode())\n    pixels += body if name == b"IDAT" else b""\n    at += size + 12\n' +
      'width, height = struct.unpack(">II", data[16:24])\nraw = zlib.decompress(pixels)\n' +
      'assert len(raw) == height * (3 * width + 1)\n' +
      'rows = [raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)] for y in range(height)]\n' +
      'colours = {row[x:x + 3] for row in rows for x in range(0, 3 * width, 3)}\n' +
      'print(names[0], names[-1], width, bytes([29, 91, 214]) in colours, bytes([255, 255, 255]) in colours)\n';
    const script = join(oomtune.home, 'look.py');
    writeFileSync(script, look);
    expect(execFileSync(PYTHON, [script, file], { encoding: 'utf8' })).toBe('IHDR IEND 1600 True True\n');
    expect(bytes.includes('Peak memory against micro-batch')).toBe(true);
  });

  it('leaves an older picture as it is when nothing fits', async () => {
    const old = join(oomtune.home, 'old.svg');
    writeFileSync(old, '<svg/>');
    const tight = ['--device', 'cpu', '--budget', '5MiB', '--amp', 'off', '--checkpointing', 'off'];
    const { code } = await oomtune.call(['find-batch', ...tight, '--plot', old, '--', PYTHON, TINY]);
    expect(code).toBe(3);
    expect(readFileSync(old, 'utf8')).toBe('<svg/>');
  });

  it('belongs to find-batch alone', async () => {
    const plot = join(oomtune.home, 'run.svg');
    for (const verb of ['run', 'submit']) {
      expect((await oomtune.call([verb, '--plot', plot, '--', PYTHON, TINY])).code).toBe(2);
    }
    expect(existsSync(plot)).toBe(false);
  });

  it('draws each part in the colour that it has on the dashboard, light and dark', () => {
    const page = readFileSync(join(ROOT, 'web', 'filling.css'), 'utf8');
    const ofPage = [...page.matchAll(/--part-(\w+): (#\w{6});/g)].map(([, part, colour]) => `${part} ${colour}`);
    const ofPicture = [...svg.matchAll(/^\.(\w+) \{ fill: (#\w{6}); \}$/gm)].map(
      ([, part, colour]) => `${part} ${colour}`,
    );
    expect(ofPage).toHaveLength(14);
    expect(ofPicture.filter((rule) => /_|parameters|gradients|activations|context|rest/.test(rule))).toEqual(ofPage);
  });
});
