import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, PROGRAM, PYTHON, ROOT } from '../cli/oomtune.js';
import { noSlurm, Slurm } from './slurm.js';

const reason = noSlurm();
if (reason !== null) console.warn(`the Slurm guide was not followed: ${reason}`);

const guide = readFileSync(join(ROOT, 'docs', 'guides', 'clusters.md'), 'utf8');

/** A batch script of the guide, for a machine without a GPU and without hours to spend. */
function script(name: string): string {
  const text = new RegExp(`^\`${name}\`:\n\n\`\`\`bash\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(guide)?.[1];
  if (!text) throw new Error(`the guide has no ${name}`);
  return text
    .replace('#SBATCH --gres=gpu:1\n', '')
    .replace('--array=0-7', '--array=0-1')
    .replace(/--budget \S+/, '--device cpu --budget 120MiB --max-batch 16');
}

/** The guide's own line that submits. */
function command(holding: string): string {
  const line = guide.split('\n').find((text) => text.startsWith('sbatch ') && text.includes(holding));
  if (!line) throw new Error(`the guide has no sbatch line with ${holding}`);
  return line;
}

describe.skipIf(reason !== null)('the guide to Slurm, on a cluster of one node', () => {
  const slurm = new Slurm();
  const oomtune = new Oomtune();
  const work = join(oomtune.home, 'work');
  const env = { ...oomtune.env, USER: 'someone', PATH: `${join(work, 'bin')}:${oomtune.env.PATH}` };
  const submit = async (line: string) => {
    const said = await slurm.call('bash', ['-euc', line], { cwd: work, env });
    return /(\d+)$/.exec(said)?.[1] as string;
  };
  const report = (name: string) => JSON.parse(readFileSync(join(work, name), 'utf8'));
  const output = (id: string) => readFileSync(join(work, `slurm-${id}.out`), 'utf8');
  const train = (text: string) => writeFileSync(join(work, 'train.py'), text);
  const example = readFileSync(join(ROOT, 'examples', 'transformer.py'), 'utf8').replace('samples=512', 'samples=64');

  beforeAll(async () => {
    mkdirSync(join(work, 'bin'), { recursive: true });
    for (const [name, program] of [
      ['oomtune', PROGRAM],
      ['python', PYTHON],
    ] as const) {
      writeFileSync(join(work, 'bin', name), `#!/bin/sh\nexec '${program}' "$@"\n`);
      chmodSync(join(work, 'bin', name), 0o755);
    }
    for (const name of ['train.sbatch', 'search.sbatch', 'array.sbatch']) writeFileSync(join(work, name), script(name));
    await slurm.start();
  });
  afterAll(async () => {
    await oomtune.close();
    await slurm.close();
  });

  it('runs a job to its end, tuned, with a report', async () => {
    train(example);
    const id = await submit(command('train.sbatch'));
    expect(await slurm.ended(id), output(id)).toMatchObject({ JobState: 'COMPLETED', ExitCode: '0:0' });
    const told = report(`report-${id}.json`);
    expect(told).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(told.launches).toBeGreaterThan(1); // the search, as --max-batch bounds it, then the run
    expect(told.devices[0].peak_bytes).toBeGreaterThan(0);
    expect(told.devices[0].peak_bytes).toBeLessThanOrEqual(120 * 2 ** 20);
  });

  it('hands the exit code of the script on to Slurm', async () => {
    train(`${example}\nraise SystemExit(9)\n`);
    const id = await submit(command('train.sbatch'));
    expect(await slurm.ended(id), output(id)).toMatchObject({ JobState: 'FAILED', ExitCode: '9:0' });
    expect(report(`report-${id}.json`)).toMatchObject({ outcome: 'failed', exit_code: 9 });
    expect(output(id)).toMatch(/On the node \S+ `OOMTUNE_HOME=\S+ oomtune explain j-\w+` tells more/);
  });

  it('searches once for an array, whose tasks run at what was found', async () => {
    train(example);
    const id = await submit(command('--dependency'));
    for (const task of [`${id}_0`, `${id}_1`]) {
      expect(await slurm.ended(task), output(task)).toMatchObject({ JobState: 'COMPLETED' });
    }
    const found = await oomtune.json(['recommend', 'gpt']);
    const [{ key }] = (found as { recommendations: { key: string }[] }).recommendations as [{ key: string }];
    for (const task of [0, 1]) {
      // the run alone: nothing was searched
      expect(report(`report-${task}.json`)).toMatchObject({ outcome: 'succeeded', launches: 1, key });
    }
  });

  it('submits through oomtune, as the page does', async () => {
    writeFileSync(join(work, 'train.py'), example);
    writeFileSync(join(work, 'evaluate.py'), 'print("accuracy 1.0")\n');
    const page = guide.split('\n').filter((line) => line.startsWith('oomtune submit --via slurm '));
    expect(page).toHaveLength(3);
    const [one = '', sweep = '', after = ''] = page.map((line) =>
      line
        .replace('--partition gpu', '--partition short')
        .replace('--cpus-per-task=8', '--cpus-per-task=1')
        .replace('--budget 24GiB --time 8h', '--device cpu --budget 120MiB --max-batch 16 --time 1m')
        .replace('seed=0..4 -- python train.py', 'seed=0..1 --device cpu -- python evaluate.py'),
    );
    const call = (line: string) => slurm.call('bash', ['-euc', line], { cwd: work, env });
    const first = await call(one);
    await call('oomtune wait @');
    expect(await call('oomtune status')).toMatch(/succeeded/);
    const jobs = (await call(sweep)).split('\n');
    expect(jobs).toHaveLength(4);
    const last = await call(after);
    await call(`oomtune wait ${[first, ...jobs, last].join(' ')}`);
    expect(await call('oomtune logs @')).toContain('accuracy 1.0');
  });

  it('prints what is recorded for other programs, as the page does', async () => {
    const page = guide.split('\n').filter((line) => /^oomtune (recommend|manifest) /.test(line));
    expect(page).toHaveLength(5);
    for (const line of page) {
      const said = await slurm.call('bash', ['-euc', line.replace(' | kubectl apply -f -', '')], { cwd: work, env });
      if (line.includes('>'))
        expect(readFileSync(join(work, 'train-gpt.sbatch'), 'utf8')).toContain('oomtune run --name gpt');
      else expect(said).toMatch(/OOMTUNE_MICRO_BATCH|podFailurePolicy/);
    }
  });

  it('leaves nothing behind when Slurm cancels', async () => {
    train(
      'import subprocess, time\nsubprocess.Popen(["sleep", "600"])\nopen("started", "w").close()\ntime.sleep(600)\n',
    );
    const id = await submit(`${command('train.sbatch').replace('sbatch ', 'sbatch --no-requeue ')}`);
    await slurm.until(id, 'RUNNING');
    await started(join(work, 'started'));
    expect(oomtune.leftovers().join('\n')).toContain('sleep 600');
    await slurm.call('scancel', [id]);
    expect(await slurm.ended(id)).toMatchObject({ JobState: 'CANCELLED' });
    await gone(() => oomtune.leftovers());
    expect(report(`report-${id}.json`)).toMatchObject({ outcome: 'cancelled' });
  });
});

async function started(file: string): Promise<void> {
  await waitFor(() => {
    try {
      readFileSync(file);
      return null;
    } catch {
      return `${file} is not there`;
    }
  });
}

/** Slurm tells CANCELLED when it has sent the signal; the job's own end takes as long as it takes. */
const gone = (look: () => string[]) => waitFor(() => look().join('\n') || null);

async function waitFor(problem: () => string | null): Promise<void> {
  for (let tries = 0; problem() !== null; tries++) {
    if (tries > 150) throw new Error(problem() ?? 'gone at the last look');
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
