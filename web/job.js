import { actionButtons } from './actions.js';
import { curveChart } from './curve-chart.js';
import { announce, h, setAttribute, setText } from './dom.js';
import { fillingPart } from './filling.js';
import { listAddress } from './filters.js';
import { clean, outcome, tone } from './format.js';
import { factsPart } from './job-facts.js';
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
  const facts = factsPart();
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
  const element = h('div', { class: 'head' }, top, verdict, facts.element);
  element.style.display = 'grid';
  element.style.gap = '14px';
  let shown = '';
  return {
    element,
    missing() {
      setText(title, 'There is no such job');
      buttons.update([]);
      facts.element.hidden = true;
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
      facts.update(job);
    },
  };
}

/** Why it waits, or why it failed; null: there is nothing to say. */
function verdictOf({ state, reason, summary, failure, cancelling }) {
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
  const short = summary !== reason && summary !== null;
  return {
    tone: tone(state) === 'busy' ? 'busy' : tone(state) === 'bad' ? 'bad' : 'idle',
    title,
    text: clean(short ? summary : reason),
    advice: short ? clean(reason) : null,
  };
}
