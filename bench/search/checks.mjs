/** What has to work from end to end on a GPU: a search, and then a job that runs to its own end with what was found. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './oomtune.mjs';

const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');

/**
 * Each check resolves with `ok` and what there is to say. `half`: the half precision of the device. `ranks`: processes under
 * torchrun. `width`: of the model.
 */
export function checksOf({ python, home, device, budget, half, ranks, width }) {
  const script = [join(ROOT, 'bench', 'workloads', 'small.py'), '--width', String(width)];
  const alone = [python, ...script];
  const together = [
    python,
    '-m',
    'torch.distributed.run',
    '--standalone',
    '--nproc-per-node',
    String(ranks),
    ...script,
  ];
  const call = (verb, name, options, command) => {
    const where = ['--name', name, '--device', device, '--budget', budget];
    const args = [OOMTUNE, verb, ...where, ...options, '--', ...command];
    const done = spawnSync(process.execPath, args, { env: { ...process.env, OOMTUNE_HOME: home }, encoding: 'utf8' });
    return { status: done.status, output: `${done.stdout}\n${done.stderr}`, stdout: done.stdout };
  };
  const find = (name, options, command) => {
    const { stdout, output } = call('find-batch', name, ['--json', ...options], command);
    try {
      return JSON.parse(stdout);
    } catch {
      throw new Error(`find-batch printed no report: ${output.slice(-1000)}`);
    }
  };
  const trained = ({ output }) => /trained on .*/.exec(output)?.[0] ?? `nothing: ${output.trim().slice(-600)}`;

  return {
    /** Ranks in lock-step, each probed; then a job at a larger effective batch than its own. */
    torchrun: () => {
      const report = find('ranks', ['--amp', 'off', '--checkpointing', 'off'], together);
      if (report.status !== 'found') return { ok: false, said: `${report.status}: ${report.failure?.evidence}` };
      const effective = report.config.micro_batch * ranks * 2;
      const run = call(
        'run',
        'ranks',
        ['--amp', 'off', '--checkpointing', 'off', '--effective-batch', String(effective)],
        together,
      );
      const said = `found ${report.max_micro_batch} in ${report.launches} launches; ${trained(run)}`;
      return { ok: run.status === 0 && said.includes(`trained on ${ranks} ranks`), said };
    },
    /** The hook's autocast (and loss scaler) in a job that runs to its end. */
    half: () => {
      const run = call('run', 'half', ['--amp', half, '--checkpointing', 'off'], alone);
      const said = trained(run);
      const [, first, last] = /loss ([\d.]+) to ([\d.]+)/.exec(said) ?? [];
      return { ok: run.status === 0 && said.includes('16:') && Number(last) < Number(first), said };
    },
    /** Sizes that fit only with activations in host memory. */
    offload: () => {
      const knobs = ['--amp', 'off', '--checkpointing', 'off'];
      const { max_micro_batch: most } = find('offload', knobs, alone);
      if (!most) return { ok: false, said: 'nothing fits as it stands' };
      const wanted = String(Math.ceil(1.3 * most));
      const report = find('offload', [...knobs, '--min-batch', wanted, '--max-batch', wanted], alone);
      if (report.config?.offload !== true)
        return { ok: false, said: `${most} as it stands; ${wanted}: ${report.status}` };
      const run = call('run', 'offload', [...knobs, '--accumulation', 'off', '--effective-batch', wanted], alone);
      return { ok: run.status === 0, said: `${most} as it stands, ${wanted} with offload; ${trained(run)}` };
    },
  };
}
