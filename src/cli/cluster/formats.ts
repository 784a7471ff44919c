import { stringify } from 'yaml';
import type { Recommendation } from '../../contract/recommendation.js';
import { configOf, shown } from '../../contract/rung.js';
import { shellWords } from '../words.js';
import { allotmentOf, runningAs } from './allotment.js';
import { podFragment } from './kubernetes.js';

export const FORMATS = ['env', 'json', 'slurm', 'k8s', 'hami', 'kai'] as const;
export type Format = (typeof FORMATS)[number];

/** A recorded configuration in the words of another program. */
export function formatted(found: Recommendation, format: Format, command: string[]): string {
  const allotment = allotmentOf(found);
  switch (format) {
    case 'env':
      return Object.entries(allotment.env)
        .map(([name, value]) => `${name}=${value}`)
        .join('\n');
    case 'json':
      return JSON.stringify(facts(found), null, 2);
    case 'slurm':
      return slurmHeader(found, command);
    case 'k8s':
      return yaml(podFragment(allotment, 'gpu'));
    default:
      return yaml(podFragment(allotment, format));
  }
}

/** Without aliases and folded lines: what is read by other programs. */
export const yaml = (document: object): string => stringify(document, { aliasDuplicateObjects: false, lineWidth: 0 });

function facts(found: Recommendation): object {
  const { gpus, mib, env } = allotmentOf(found);
  return {
    key: found.key,
    name: found.name,
    config: shown(configOf(found, found)),
    gpus,
    budget_bytes: found.budget_bytes,
    budget_mib: mib,
    peak_bytes: found.peak_bytes,
    env,
    run: ['oomtune', 'run', ...runningAs(found)],
  };
}

function slurmHeader(found: Recommendation, command: string[]): string {
  const { gpus, hostMib } = allotmentOf(found);
  const words = command.length > 0 ? shellWords(command) : 'COMMAND';
  return [
    '#!/bin/bash',
    '#SBATCH --nodes=1',
    gpus > 0 ? `#SBATCH --gpus-per-node=${gpus}` : `#SBATCH --mem=${hostMib}M`,
    `srun --ntasks=1 oomtune run ${shellWords(runningAs(found))} -- ${words}`,
  ].join('\n');
}
