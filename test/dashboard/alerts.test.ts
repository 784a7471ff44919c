import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { createMetrics } from '../../src/daemon/http/metrics.js';
import { ROOT } from '../store/home.js';
import { noPromtool, promtool } from './promtool.js';

interface Rule {
  alert: string;
  expr: string;
  for?: string;
  annotations: { summary: string; remedy: string };
}

const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');
const text = read('deploy', 'prometheus-alerts.yaml');
const rules = parse(text).groups[0].rules as Rule[];

/** Minutes: `quiet` it does not fire, `loud` it does, with these labels. Values are a minute apart. */
interface Case {
  series: Record<string, string>;
  quiet: number;
  loud: number;
  labels?: Record<string, string>;
}

const HERE = { job: 'oomtune', instance: 'gpu-1:8421' };
const here = (name: string, labels = ''): string =>
  `${name}{job="oomtune",instance="gpu-1:8421"${labels && `,${labels}`}}`;
const there = (name: string, labels = ''): string => here(name, labels).replace('gpu-1', 'gpu-2');
/** For an hour and more as it should be, then not; or nothing until then, and then something. */
const later = (before: number, after: number): string => `${before}+0x60 ${after}+0x120`;
const rise = (every: number): string => `0+0x60 ${every}+${every}x120`;
/** Jobs of each state, as both hosts of one Redis tell them. */
const states = (queued: string, running: string): Record<string, string> => ({
  [here('oomtune_jobs', 'state="queued"')]: queued,
  [there('oomtune_jobs', 'state="queued"')]: queued,
  [here('oomtune_jobs', 'state="searching"')]: '0+0x180',
  [here('oomtune_jobs', 'state="running"')]: running,
  [there('oomtune_jobs', 'state="running"')]: running,
});
/** A histogram whose observations all fall between two bounds: two a minute. */
const histogram = (name: string, bounds: [le: string, values: string][]): Record<string, string> =>
  Object.fromEntries(bounds.map(([le, values]) => [here(`${name}_bucket`, `le="${le}"`), values]));

const CASES: Record<string, Case> = {
  OomtuneDaemonDown: { series: { [here('up')]: later(1, 0) }, quiet: 62, loud: 64, labels: HERE },
  OomtuneRedisDown: { series: { [here('oomtune_redis_up')]: later(1, 0) }, quiet: 61, loud: 63, labels: HERE },
  OomtuneHostGone: {
    series: {
      [here('oomtune_hosts', 'alive="false"')]: later(0, 1),
      [there('oomtune_hosts', 'alive="false"')]: later(0, 1),
      [here('oomtune_hosts', 'alive="true"')]: '2+0x180',
    },
    quiet: 65,
    loud: 67,
  },
  OomtuneDeviceFault: {
    series: {
      [here('oomtune_device_fault', 'device="cuda:0",model="H200"')]: later(0, 1),
      [here('oomtune_device_fault', 'device="cuda:1",model="H200"')]: '0+0x180',
    },
    quiet: 60,
    loud: 62,
    labels: { ...HERE, device: 'cuda:0', model: 'H200' },
  },
  OomtuneMemoryHeldByStrangers: {
    series: {
      [here('oomtune_device_memory_total_bytes', 'device="cuda:0",model="H200"')]: '100+0x180',
      [here('oomtune_device_memory_foreign_bytes', 'device="cuda:0",model="H200"')]: later(9, 20),
      // what others hold of the host's memory is nobody's fault
      [here('oomtune_device_memory_total_bytes', 'device="cpu",model="Xeon"')]: '100+0x180',
      [here('oomtune_device_memory_foreign_bytes', 'device="cpu",model="Xeon"')]: '90+0x180',
    },
    quiet: 75,
    loud: 77,
    labels: { ...HERE, device: 'cuda:0', model: 'H200' },
  },
  OomtuneJobsWait: {
    series: { [here('oomtune_queue_oldest_seconds')]: '0+60x600', [there('oomtune_queue_oldest_seconds')]: '0+60x600' },
    quiet: 360,
    loud: 362,
  },
  OomtuneNothingRuns: { series: states('3+0x180', later(1, 0)), quiet: 70, loud: 72 },
  OomtuneLeasesLeft: {
    series: { ...states('0+0x180', later(1, 0)), [here('oomtune_leases')]: '1+0x180' },
    quiet: 90,
    loud: 92,
  },
  OomtuneOutOfMemory: {
    series: {
      [here('oomtune_job_failures_total', 'class="device_oom"')]: rise(1),
      [here('oomtune_job_failures_total', 'class="user_error"')]: '0+1x180',
    },
    quiet: 60,
    loud: 63,
    labels: { ...HERE, class: 'device_oom' },
  },
  OomtuneOutOfHostMemory: {
    series: { [here('oomtune_job_failures_total', 'class="shm"')]: rise(1) },
    quiet: 60,
    loud: 63,
    labels: { ...HERE, class: 'shm' },
  },
  OomtuneHardwareOrNetwork: {
    series: { [here('oomtune_job_failures_total', 'class="network"')]: rise(1) },
    quiet: 60,
    loud: 63,
    labels: { ...HERE, class: 'network' },
  },
  OomtuneNothingFits: {
    series: { [here('oomtune_jobs_ended_total', 'state="exhausted"')]: rise(1) },
    quiet: 60,
    loud: 63,
    labels: { ...HERE, state: 'exhausted' },
  },
  OomtuneJobsFail: {
    series: {
      [here('oomtune_jobs_ended_total', 'state="succeeded"')]: '0+1x180',
      [here('oomtune_jobs_ended_total', 'state="failed"')]: rise(3),
      [there('oomtune_jobs_ended_total', 'state="timeout"')]: rise(1),
    },
    quiet: 62,
    loud: 120,
  },
  OomtuneRecommendationDemoted: {
    series: { [here('oomtune_recommendations_demoted_total')]: rise(1) },
    quiet: 60,
    loud: 63,
    labels: HERE,
  },
  OomtuneProbesFail: {
    series: {
      [here('oomtune_probes_total', 'outcome="device_oom"')]: '0+5x180',
      [here('oomtune_probes_total', 'outcome="fit"')]: '0+9x180',
      [here('oomtune_probes_total', 'outcome="user_error"')]: rise(1),
    },
    quiet: 61,
    loud: 80,
  },
  OomtuneSearchesSlow: {
    series: histogram('oomtune_search_duration_seconds', [
      ['60', '0+2x60 120+0x600'],
      ['1200', '0+2x60 120+0x600'],
      ['3600', '0+2x600'],
      ['+Inf', '0+2x600'],
    ]),
    quiet: 60,
    loud: 300,
  },
  OomtuneWaitsGrow: {
    series: histogram('oomtune_queue_wait_seconds', [
      ['60', '0+2x60 120+0x600'],
      ['14400', '0+2x60 120+0x600'],
      ['43200', '0+2x600'],
      ['+Inf', '0+2x600'],
    ]),
    quiet: 60,
    loud: 300,
  },
  OomtuneRecordsRefused: { series: { [here('oomtune_refused_records')]: later(0, 2) }, quiet: 60, loud: 62 },
  OomtuneDaemonStrained: {
    series: {
      [here('nodejs_eventloop_lag_p99_seconds')]: later(0.02, 2),
      [here('process_resident_memory_bytes')]: '200000000+0x180',
      [here('process_resident_memory_bytes').replace('oomtune', 'other')]: '9000000000+0x180',
    },
    quiet: 70,
    loud: 72,
    labels: HERE,
  },
};

/** Annotations as Prometheus fills them in. */
const filled = (annotations: Rule['annotations'], labels: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(annotations).map(([name, value]) => [
      name,
      value.replace(/\{\{ \$labels\.(\w+) \}\}/g, (_, label: string) => labels[label] ?? ''),
    ]),
  );

function unitTest({ alert, annotations }: Rule, { series, quiet, loud, labels = {} }: Case): string {
  const one = { exp_labels: labels, exp_annotations: filled(annotations, labels) };
  return stringify({
    rule_files: ['rules.yaml'],
    evaluation_interval: '1m',
    tests: [
      {
        interval: '1m',
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        alert_rule_test: [
          { eval_time: `${quiet}m`, alertname: alert, exp_alerts: [] },
          { eval_time: `${loud}m`, alertname: alert, exp_alerts: [one] },
        ],
      },
    ],
  });
}

describe('the alerts', () => {
  it('are those that the reference shows', () => {
    expect(read('docs', 'reference', 'metrics.md')).toContain(`\`\`\`yaml\n${text}\`\`\``);
    expect(Object.keys(CASES).sort()).toEqual(rules.map(({ alert }) => alert).sort());
    for (const { alert, annotations } of rules) {
      expect(annotations.remedy.length, alert).toBeGreaterThan(10);
      expect(annotations.summary.length, alert).toBeGreaterThan(10);
    }
  });

  it.skipIf(noPromtool)('are rules that Prometheus takes', () => {
    const { code, said } = promtool(['check', 'rules', '--lint-fatal', 'rules.yaml'], { 'rules.yaml': text });
    expect(code, said).toBe(0);
    expect(said).toContain(`SUCCESS: ${rules.length} rules found`);
  });

  it.skipIf(noPromtool)('are taken in by the configuration that the reference shows', () => {
    const config = /```yaml\n(rule_files:.*?)```/s.exec(read('docs', 'reference', 'metrics.md'))?.[1] ?? '';
    expect(parse(config).scrape_configs[0].job_name).toBe('oomtune');
    const { code, said } = promtool(['check', 'config', '--syntax-only', 'prometheus.yaml'], {
      'prometheus.yaml': config,
    });
    expect(code, said).toBe(0);
  });

  it.skipIf(noPromtool).each(rules)('$alert fires when it should, and not before', (rule) => {
    const files = { 'rules.yaml': text, 'test.yaml': unitTest(rule, CASES[rule.alert] as Case) };
    const { code, said } = promtool(['test', 'rules', 'test.yaml'], files);
    expect(code, said).toBe(0);
  });

  it.skipIf(noPromtool)('would be told apart by their tests: a threshold that is off fails', () => {
    const [rule] = rules.filter(({ alert }) => alert === 'OomtuneHostGone') as [Rule];
    const changed = text.replace('oomtune_hosts{alive="false"}) > 0', 'oomtune_hosts{alive="false"}) > 1');
    expect(changed).not.toBe(text);
    const files = { 'rules.yaml': changed, 'test.yaml': unitTest(rule, CASES.OomtuneHostGone as Case) };
    expect(promtool(['test', 'rules', 'test.yaml'], files).code).not.toBe(0);
  });
});

describe('the example dashboard', () => {
  const board = JSON.parse(read('deploy', 'grafana-dashboard.json')) as {
    templating: { list: { query: string | { query: string } }[] };
    panels: { title: string; targets: { expr: string }[] }[];
  };
  /** Grafana's variables, as it would fill them in. */
  const asked = (expr: string): string =>
    expr.replaceAll('$__rate_interval', '5m').replace(/\$(?:__\w+|\w+)/g, (name) => `\${${name.slice(1)}}`);
  const expressions = board.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })));

  it.skipIf(noPromtool)('asks only what Prometheus can answer', () => {
    expect(expressions.length).toBeGreaterThan(20);
    const records = expressions.map(({ expr }, n) => ({ record: `panel:expression:n${n}`, expr: asked(expr) }));
    const check = (some: typeof records): ReturnType<typeof promtool> =>
      promtool(['check', 'rules', 'panels.yaml'], {
        'panels.yaml': stringify({ groups: [{ name: 'panels', rules: some }] }),
      });
    const { code, said } = check(records);
    expect(code, said).toBe(0);
    expect(said).toContain(`SUCCESS: ${records.length} rules found`);
    expect(check([{ record: 'panel:expression:wrong', expr: 'sum(rate(oomtune_jobs[5m]' }]).code).not.toBe(0);
  });

  it('fills its lists of choices from metrics that there are', () => {
    const all = createMetrics()
      .registry.getMetricsAsArray()
      .map(({ name }) => name);
    const queries = board.templating.list.map(({ query }) => (typeof query === 'string' ? query : query.query));
    const names = queries.flatMap((query) => query.match(/oomtune_\w+/g) ?? []);
    expect(names.length).toBeGreaterThan(1);
    for (const name of names) expect(all).toContain(name);
  });
});
