import { actionButtons } from './actions.js';
import { curveChart } from './curve-chart.js';
import { announce, h, setAttribute, setText } from './dom.js';
import { fillingPart } from './filling.js';
import { listAddress } from './filters.js';
import { ago, bytes, clean, command, number, outcome, seconds, tone, took } from './format.js';
import { ladderPart } from './ladder.js';
import { logPart } from './log.js';
import { memoryChart } from './memory-chart.js';

/** One job: what it is, how its configuration was found, its memory, its log. */
export function jobPage(id) {
  const head = headPart(id);
  const curve = curveChart();
  const memory = memoryChart();
  const filling = fillingPart();
  const ladder = ladderPart();
  const log = logPart();
  const pair = h('div', { class: 'pair' }, curve.element, memory.element);
  const rest = [filling.element, pair, ladder.element, log.element];
  let job = null;
  const clock = setInterval(() => job && head.update(job), 1000);
  return {
    elements: [head.element, ...rest],
    handlers: {
      hello: () => log.reset(),
      job(next) {
        for (const part of rest) part.hidden = next === null;
        if (next === null) {
          head.missing();
          return;
        }
        if (job !== null && job.state !== next.state) announce(`${next.name}: ${next.state}.`);
        if (job !== null && next.steps.length > job.steps.length) {
          const { micro_batch: size, outcome: word } = next.steps.at(-1);
          announce(`Micro-batch ${size}: ${outcome(word)}.`);
        }
        job = next;
        head.update(job);
        ladder.update(job);
        curve.update(job);
        filling.update(job);
        memory.setJob(job);
      },
      memory: memory.update,
      log: (piece) => (piece.again ? log.reset() : log.add(piece)),
    },
    close() {
      clearInterval(clock);
      curve.close();
      memory.close();
    },
  };
}

function headPart(id) {
  const title = h('h1', {}, id);
  const state = h('span', { class: 'state' });
  const buttons = actionButtons(id);
  const verdict = h('div', { class: 'sheet verdict', hidden: true });
  const facts = h('dl', { class: 'facts' });
  const line = h('p', { class: 'command' });
  const sheet = h('section', { class: 'sheet', 'aria-label': 'Facts' }, facts, line);
  const top = h(
    'div',
    {},
    h('p', { class: 'crumb' }, h('a', { href: listAddress() }, '← All jobs')),
    h(
      'div',
      { class: 'title' },
      title,
      state,
      h('span', { class: 'mono quiet' }, id),
      h('span', { class: 'grow' }),
      buttons.element,
    ),
  );
  const element = h('div', { class: 'head' }, top, verdict, sheet);
  element.style.display = 'grid';
  element.style.gap = '14px';
  let shown = '';
  const cells = new Map();
  return {
    element,
    missing() {
      setText(title, 'There is no such job');
      buttons.update([]);
      sheet.hidden = true;
      verdict.hidden = false;
      verdict.replaceChildren(
        h('p', {}, `${id} is not known here. It may have been forgotten: only the latest jobs are kept.`),
      );
    },
    update(job) {
      setText(title, clean(job.name));
      setText(state, job.cancelling ? 'cancelling' : job.state);
      setAttribute(state, 'data-tone', tone(job.state));
      buttons.update(job.actions);
      setText(line, command(job.command.map(clean)));
      const said = verdictOf(job);
      verdict.hidden = said === null;
      if (said !== null && JSON.stringify(said) !== shown) {
        shown = JSON.stringify(said);
        verdict.dataset.tone = said.tone;
        verdict.replaceChildren(
          h('p', {}, h('b', {}, said.title), said.text ? ` ${said.text}` : ''),
          ...(said.evidence ? [h('p', { class: 'evidence' }, said.evidence)] : []),
          ...(said.advice ? [h('p', { class: 'small quiet' }, said.advice)] : []),
        );
      }
      for (const [name, value, more] of factsOf(job)) {
        if (!cells.has(name)) {
          const cell = { value: document.createTextNode(''), more: h('small', {}), box: null };
          cell.box = h('div', {}, h('dt', {}, name), h('dd', {}, cell.value, cell.more));
          cells.set(name, cell);
          facts.append(cell.box);
        }
        const cell = cells.get(name);
        if (cell.value.data !== value) cell.value.data = value;
        setText(cell.more, more ?? '');
      }
    },
  };
}

/** Why it waits, or why it failed; null: there is nothing to say. */
function verdictOf({ state, reason, failure, cancelling }) {
  if (failure !== null) {
    const { cause, evidence, advice } = failure;
    const word = state === 'exhausted' ? 'Nothing fits.' : `It failed: ${outcome(failure.class)}.`;
    const told = cause !== null && cause !== evidence ? clean(cause) : null;
    return {
      tone: 'bad',
      title: word,
      text: told,
      evidence: evidence && clean(evidence),
      advice: advice && clean(advice),
    };
  }
  if (!reason) return null;
  const titles = { queued: 'It waits:', held: 'It is held:', searching: 'Searching:', running: 'Running:' };
  const title = cancelling ? 'It is being cancelled:' : (titles[state] ?? 'It ended:');
  return { tone: tone(state) === 'busy' ? 'busy' : tone(state) === 'bad' ? 'bad' : 'idle', title, text: clean(reason) };
}

function factsOf(job) {
  const { config, recommendation: found, started_at: from, ended_at: to } = job;
  const time = took(from, to);
  const best = found === null || config === null ? null : found.max_micro_batch;
  const knobs =
    config === null
      ? []
      : [
          config.amp === 'off' ? null : config.amp,
          config.checkpointing ? 'checkpointing' : null,
          config.offload ? 'offload' : null,
        ].filter(Boolean);
  const speed = speedOf(job);
  const peak = peakOf(job);
  return [
    ['Micro-batch', config === null ? '—' : String(config.micro_batch), best === null ? null : `at most ${best} fits`],
    [
      'Effective batch',
      config === null ? '—' : String(config.effective_batch),
      config === null ? null : `${config.micro_batch} × ${config.accumulation} × ${config.world_size}`,
    ],
    ['Knobs', config === null ? '—' : knobs.join(', ') || 'as it stands', null],
    ['Peak', bytes(peak), job.budget_bytes === null ? null : `of ${bytes(job.budget_bytes)}`],
    ['Speed', speed === null ? '—' : number(speed), speed === null ? null : 'samples/s'],
    ['Where', job.host ?? '—', job.devices.join(', ') || null],
    ['Submitted', ago(job.submitted_at), new Date(job.submitted_at).toLocaleTimeString()],
    ['Took', time === null ? '—' : seconds(time), job.exit_code === null ? null : `exit code ${job.exit_code}`],
  ];
}

/** As the ladder has it: measured at the size that the job runs at, on its rung. Null: it was not. */
function speedOf({ config, recommendation: found, steps }) {
  if (config === null) return null;
  const same = (one) =>
    one.micro_batch === config.micro_batch &&
    one.amp === config.amp &&
    one.checkpointing === config.checkpointing &&
    Boolean(one.offload) === Boolean(config.offload);
  const speeds = steps.filter((one) => one.outcome === 'fit' && same(one)).map((one) => one.samples_per_s ?? 0);
  if (found !== null && same(found) && found.samples_per_s !== null) speeds.push(found.samples_per_s);
  return speeds.length === 0 ? null : Math.max(...speeds) || null;
}

function peakOf({ config, recommendation, memory, steps }) {
  if (memory !== null && config !== null && memory.micro_batch === config.micro_batch) return memory.peak_bytes;
  if (recommendation !== null && config !== null && recommendation.micro_batch === config.micro_batch)
    return recommendation.peak_bytes;
  const peaks = steps.flatMap(({ outcome: word, peak_bytes: peak }) => (word === 'fit' && peak !== null ? [peak] : []));
  return peaks.length === 0 ? null : Math.max(...peaks);
}
