import { formatBytes } from '../common/size.js';
import { plain } from '../common/terminal.js';
import type { Recommendation } from '../contract/recommendation.js';
import { rungName } from '../contract/rung.js';
import { knobFacts } from './find-batch-view.js';
import type { Paint } from './output.js';
import { facts, table } from './table.js';
import { ago, bytesOr, configWords, rate } from './words.js';

export function renderRecommendations(recorded: Recommendation[], paint: Paint): string {
  const all = plain(recorded);
  if (all.length === 1) return renderOne(all[0] as Recommendation, paint);
  return table(
    all,
    [
      { title: 'KEY', value: (one) => one.key },
      { title: 'CONFIG', value: (one) => (one.status === 'demoted' ? '-' : configWords(one)), least: 14 },
      { title: 'RUNG', value: (one) => rungName(one), least: 8 },
      { title: 'MAX', value: (one) => (isOwnOnly(one) ? '-' : largest(one)), align: 'right' },
      { title: 'PEAK', value: (one) => bytesOr(one.peak_bytes), align: 'right' },
      {
        title: 'SAMPLES/S',
        value: (one) => (one.samples_per_s === null ? '-' : rate(one.samples_per_s)),
        align: 'right',
      },
      { title: 'VERIFIED', value: (one) => ago(one.verified_at) },
      { title: 'STATUS', value: (one) => (one.status === 'verified' ? one.status : paint('yellow', one.status)) },
    ],
    paint,
  );
}

/** The largest known size, below one that ran out of memory since. */
function largest({ knob, status, max_micro_batch: max, known_bad_micro_batch: bad }: Recommendation): string {
  if (knob !== undefined) return String(knob.max);
  return status === 'demoted' && bad !== null && bad <= max ? `below ${bad}` : String(max);
}

/** Only one size was ever tried: that of a job that fits as it stands. */
function isOwnOnly({
  knob,
  status,
  probes,
  max_micro_batch: max,
  known_bad_micro_batch: bad,
}: Recommendation): boolean {
  return (
    knob === undefined &&
    status !== 'demoted' &&
    bad === null &&
    probes.length > 0 &&
    probes.every((probe) => probe.micro_batch === max)
  );
}

function renderOne(one: Recommendation, paint: Paint): string {
  return `${paint('bold', one.key)}\n${facts([
    [
      'recommended',
      one.status === 'demoted'
        ? `${paint('yellow', 'none')}: ${configWords(one)} ran out of memory in a run, the next one searches anew`
        : `${paint('green', configWords(one))}, ${rungName(one)}`,
    ],
    ...knobFacts(one.knob),
    one.knob !== undefined
      ? ['largest', null]
      : [
          'largest',
          isOwnOnly(one) ? `not known: larger ones than ${largest(one)} were not tried` : `micro-batch ${largest(one)}`,
        ],
    ['too large', one.known_bad_micro_batch === null ? null : `micro-batch ${one.known_bad_micro_batch}`],
    ['device', `${one.gpu_model}, budget ${formatBytes(one.budget_bytes)}`],
    ['peak', one.peak_bytes === null ? null : formatBytes(one.peak_bytes)],
    ['speed', one.samples_per_s === null ? null : `${rate(one.samples_per_s)} samples/s`],
    ['status', `${one.status}, ${ago(one.verified_at)} (${one.verified_at})`],
    ['torch', one.torch],
    ['driver', one.driver],
  ])}`;
}
