import { OomtuneError } from '../common/errors.js';
import type { Recommendation } from '../contract/recommendation.js';
import { type Config, configOf } from '../contract/rung.js';
import { digest, fill, type Knob, recognise } from '../worker/command/index.js';
import { knobNames } from '../worker/command/placeholders.js';
import { appliedFolder } from '../worker/key.js';
import { nothingRecorded } from '../worker/knob/nothing-recorded.js';
import { EXPANDABLE_SEGMENTS } from '../worker/memory/allocator.js';
import { requireOneMachine } from '../worker/one-machine.js';
import { runningAs } from './cluster/allotment.js';

interface Applied {
  key: string;
  config: Config;
  argv: string[];
  /** Variables that the program has to be given besides; empty where argv carries everything. */
  env: Record<string, string>;
  notes: string[];
}

/** Fills a recommendation into the command: the one recorded for this command, else the latest verified one of its name. */
export async function applyRecommendation(
  batches: Recommendation[],
  name: string | null,
  command: string[],
  knobs: Recommendation[] = [],
): Promise<Applied> {
  const names = knobNames(command);
  const found = names.size === 0 ? batches : knobs.filter(({ knob }) => knob !== undefined && names.has(knob.name));
  const plan = await recognise(command, { cwd: process.cwd(), env: process.env, preset: 'auto', knobs: names });
  const own = digest(plan);
  const latest = found
    .filter((one) => one.status === 'verified')
    .sort((a, b) => Date.parse(b.verified_at) - Date.parse(a.verified_at));
  const chosen = latest.find((one) => one.command_digest === own) ?? (name === null ? undefined : latest[0]);
  if (chosen === undefined) {
    throw new OomtuneError(
      'OOMTUNE_NO_SUCH_CONFIG',
      name === null ? 'Nothing is recorded for this command.' : `No recommendation "${name}" is verified.`,
      'Record one: oomtune find-batch -- COMMAND…, or name another (`oomtune recommend`).',
    );
  }
  const notes = chosen.command_digest === own ? [] : [`${chosen.key} was recorded for another command.`];
  for (const other of names) if (other !== chosen.knob?.name) throw nothingRecorded(other, command);
  const config = configOf(chosen, chosen);
  const filled = await fill(plan, config, { launchDir: appliedFolder(chosen.key) });
  // What the command has by itself needs no carrier
  const changed: Knob[] = [
    ...(chosen.knob === undefined ? (['micro_batch'] as const) : []),
    ...(config.accumulation === (plan.own.accumulation ?? 1) ? [] : (['accumulation'] as const)),
    ...(config.amp === (plan.own.amp ?? 'off') ? [] : (['amp'] as const)),
    ...(config.checkpointing === (plan.own.checkpointing ?? false) ? [] : (['checkpointing'] as const)),
  ];
  const carriers = new Set(changed.map((knob) => plan.carriers[knob]));
  if (carriers.has('hook')) {
    requireOneMachine(plan);
    notes.push('The command does not take all of it by itself: `oomtune run` brings it in.');
    return { key: chosen.key, config, argv: underOomtune(chosen, command), env: {}, notes };
  }
  if (carriers.has('none')) notes.push('Nothing in the command takes all of it: put placeholders where it does.');
  const segments = chosen.expandable_segments ? EXPANDABLE_SEGMENTS : {};
  return { key: chosen.key, config, argv: filled.argv, env: carriers.has('env') ? filled.env : segments, notes };
}

/** The command for `oomtune run` that finds this very recommendation again. */
function underOomtune(chosen: Recommendation, command: string[]): string[] {
  const batch = ['--effective-batch', String(chosen.effective_batch)];
  return ['oomtune', 'run', ...batch, ...runningAs(chosen), '--', ...command];
}
