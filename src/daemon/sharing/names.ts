import type { StoredJob } from '../../store/index.js';

/** What a job is known by to the jobs after it. */
export const nameOf = ({ options, name }: Pick<StoredJob, 'options' | 'name'>): string => options.name ?? name;
