import { Automaton } from './automaton.js';

/** What the words around a message say of its weight. All tests are on canonical text: no blanks, lower case. */

const DEALT_WITH = [
  'skippingbatch',
  'skippingthisbatch',
  'skippedbatch',
  'skipbatch',
  'skipping',
  'skipped',
  'retrying',
  'willretry',
  'tryingagain',
  'recovered',
  'recovering',
  'caughtoom',
  'caughtcuda',
  'caughtout',
  'caughtexception',
  'reducingbatch',
  'reducebatchsizeto',
  'reducedbatch',
  'reducingthebatch',
  'decreasingbatch',
  'decreasingtrain',
  'decreasedbatch',
  'halvingbatch',
  'halvingthe',
  'loweringbatch',
  'tryingbatchsize',
  'tryingwith',
  'trywithsmaller',
  'fallingback',
  'fellback',
  'continuing',
  'emptyingcache',
  'emptyingthecache',
  'clearingcache',
  'clearedcache',
  'notafailure',
  'notafatal',
  'nonfatal',
  'ignoring',
  'washandled',
  'ishandled',
  'splittingbatch',
  'oomevents',
];

/** Speaks of something that could happen, or tells how to prevent it. */
const SUPPOSED = [
  'ifyou',
  'toavoid',
  'avoiding',
  'incaseof',
  'prevent',
  'maycause',
  'mayresult',
  'mightcause',
  'couldcause',
  'cancause',
  'canleadto',
  'mayleadto',
  'mayrun',
  'mightrun',
  'couldrun',
  'likelyto',
  'wheneveryou',
  'handlingof',
  'ifthe',
  'ifthis',
  'youmay',
  'youmight',
  'tohandle',
  'catches',
  'riskof',
  'example:',
  'hint:',
  'tip:',
  'note:',
  'readme',
  'deprecat',
  'excepttorch',
  'exceptruntime',
  'exceptmemory',
  'except(',
  'raisetorch',
  'raiseruntime',
  'raisememory',
  'raiseoutof',
  'if"',
  "if'",
];

export function saysDealtWith(canonical: string): boolean {
  dealtWith ??= new Automaton(DEALT_WITH);
  let found = false;
  dealtWith.walk(canonical, 0, (literal, end) => {
    // Without its blanks, "you are trying" holds "retrying".
    if (DEALT_WITH[literal] !== 'retrying' || canonical[end - 'retrying'.length - 1] !== 'a') found = true;
  });
  return found;
}

let dealtWith: Automaton | null = null;

/** `before`: the canonical text of the line in front of the message. */
export function saysSupposed(before: string): boolean {
  return before !== '' && SUPPOSED.some((word) => before.includes(word));
}

const QUOTED = ['hasnoattribute', 'cannotimportname', "'isnotdefined", 'didyoumean:', 'unresolvedreference'];

/** A line that says that a name is not there: it may be the name of an error, which then did not happen. */
export function saysNoSuchName(canonical: string): boolean {
  return QUOTED.some((word) => canonical.includes(word));
}

const LEVEL = /(?:^|[\s[\]|:(-])(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)(?=$|[\s\]|:)-])/;
const LOWER_LEVEL = /(?:^|[\s[])(debug|info|warning|warn)(?=[:\]]| -)|level=(debug|info|warn)/;
const GLOG = /^\[?([IWEF])(?:\d{4} | \w+\.cpp|\d{8} )/;

/** A log level of warning or less at the head of the line. */
export function isMild(text: string): boolean {
  const head = text.slice(0, 120);
  const level = LEVEL.exec(head)?.[1] ?? LOWER_LEVEL.exec(head)?.[0]?.trim().toUpperCase();
  if (level) return !/ERROR|CRITICAL|FATAL/.test(level);
  if (/\w+Warning: /.test(head)) return true;
  const glog = GLOG.exec(head)?.[1];
  return glog === 'I' || glog === 'W';
}
