import { Automaton } from './automaton.js';

/** The words of a text, between blanks. */
export function wordsOf(text: string): string[] {
  return text.trim().split(/\s+/);
}

/** What the words around a message say of its weight. All tests are on canonical text: no blanks, lower case. */
const DEALT_WITH = wordsOf(`
  skippingbatch skippingthisbatch skippedbatch skipbatch skipping skipped retrying willretry isretried tryingagain recovered
  recovering caughtoom caughtcuda caughtout caughtexception reducingbatch reducebatchsizeto reducedbatch
  reducingthebatch decreasingbatch decreasingtrain decreasedbatch halvingbatch halvingthe loweringbatch
  tryingbatchsize tryingwith trywithsmaller fallingback fellback continuing emptyingcache emptyingthecache
  clearingcache clearedcache notafailure notafatal nonfatal ignoring to/tmpinstead reinitdueto washandled ishandled splittingbatch oomevents
`);

/** Speaks of something that could happen, or tells how to prevent it. */
const SUPPOSED = wordsOf(`
  ifyou toavoid avoiding incaseof prevent maycause mayresult mightcause couldcause cancause canleadto mayleadto
  mayrun mightrun couldrun likelyto wheneveryou handlingof ifthe ifthis youmay youmight tohandle catches riskof
  example: hint: tip: note: readme deprecat excepttorch exceptruntime exceptmemory except( raisetorch raiseruntime
  raisememory raiseoutof if" if'
`);

export function saysDealtWith(canonical: string): boolean {
  dealtWith ??= new Automaton(DEALT_WITH);
  let found = false;
  dealtWith.walk(canonical, 0, (literal, end) => {
    const word = DEALT_WITH[literal] as string;
    const before = canonical.slice(Math.max(0, end - word.length - 9), end - word.length);
    // Without their blanks, "you are trying" and "were trying" hold "retrying", and "uncaught exception" says the opposite of "caught".
    if (word === 'retrying' && /(?:a|we)$/.test(before)) return;
    if (word.startsWith('caught') && before.endsWith('un')) return;
    if (!DENIED.test(before)) found = true;
  });
  return found;
}

const DENIED = /(?:not|nolonger|failedto|unableto)$/;

let dealtWith: Automaton | null = null;

/** `before`: the canonical text of the line in front of the message. */
export function saysSupposed(before: string): boolean {
  return before !== '' && SUPPOSED.some((word) => before.includes(word));
}

const QUOTED = wordsOf(`
  hasnoattribute cannotimportname 'isnotdefined didyoumean: unresolvedreference
`);

/** A line that says that a name is not there: it may be the name of an error, which then did not happen. */
export function saysNoSuchName(canonical: string): boolean {
  return QUOTED.some((word) => canonical.includes(word));
}

/** Behind these words stands what may have been the cause (Ray's word of a worker that died): nobody says that it was. */
const CAUSES = wordsOf('causesinclude rootcauses possiblecauses possiblereasons causescanbe causescouldbe');

/** `before`: the canonical text of the line in front of the message. */
export function listsCauses(before: string): boolean {
  return CAUSES.some((word) => before.includes(word));
}

const LEVEL = /(?:^|[\s[\]|:(-])(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)(?=$|[\s\]|:)-])/;
const LOWER_LEVEL = /(?:^|[\s[])(debug|info|warning|warn)(?=[:\]]| -)|level=(debug|info|warn)/;
const GLOG = /^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: )?\[?([IWEF])(?:\d{4} | \w+\.cpp|\d{8} | [\w/]+\.cc:)/;

const ERROR_LEVEL = /(?:^|[\s[\]|:(-])(?:ERROR|CRITICAL|FATAL)(?=$|[\s\]|:)-])/;
/** `error: …` as commands say it: at the line's start or behind their name, with words after it and no figure. */
const NAMED_ERROR =
  /(?:^|[\])|:>!*] ?)(?:fatal )?(?:error|fatal|failure)(?: \[[\w.-]{1,20}\]|(?: [a-z\d]{1,14}){1,4})?: ?(?=[^\s\d.+-])/i;
const FAILED =
  /\b(?:failed with (?:code|exit|status|return)|returned (?:a )?non-?zero (?:code|exit|status)|exited with (?:code|status|exit code) [1-9]|exiting due to|uncaught exception|unhandled exception|exception during|job (?:has )?failed|command failed|an error occurred|has detected the following error|exit-code [1-9]|assertion failed|check failed|\bline \d+: syntax error)/i;
/** How what a script ran ended, as the script puts it: `evaluation FAILED (exit 1)`, `(return value 134)`. */
const EXITED = /\((?:exit(?:ed)?(?: with)?|return)(?: code| status| value)?[ =:]{1,2}[1-9]\d{0,2}\)/i;
/** `Import of the data failed: …`: a short clause that ends so, and what it failed for. */
const CLAUSE_FAILED = /^(?:[\w-]{1,24} ){1,6}failed: (?=[A-Za-z'"[(<])/i;
/** Installers and GLib call so what is no failure of theirs. */
const NO_FAILURE = /pip's dependency resolver|\b(?:GLib|G[a-z]{2,6})(?:-\w+)*-(?:CRITICAL|WARNING) \*\*:/;
/** An exception of any language, by the form of its name: `paddle.fluid.core.EnforceNotMet: …`. */
const NAMED_EXCEPTION = /^(?:[a-z_]\w{0,60}\.){1,12}[A-Z]\w{2,60}: /;

/** A line that says that something failed, whoever says it and whatever it was. */
export function saysFailed(text: string): boolean {
  if (isTracker(text) || NO_FAILURE.test(text)) return false;
  const head = text.slice(0, 400);
  return (
    ERROR_LEVEL.test(text.slice(0, 120)) ||
    NAMED_ERROR.test(head) ||
    FAILED.test(head) ||
    EXITED.test(head) ||
    NAMED_EXCEPTION.test(head) ||
    CLAUSE_FAILED.test(head)
  );
}

/** As a log's last line it is most likely why the log ends there. */
export function saysCannot(text: string): boolean {
  return (
    !isTracker(text) &&
    /^(?:failed to|could not|couldn't|can't|cannot|unable to|aborted|aborting|no such)\b/i.test(text)
  );
}

/** NCCL knows no level above WARN: what fails, it warns of. No job needs the socket on which it can be asked how it is (ras). */
const NCCL_FAILED =
  /(?<!\bras\/\w{1,30}\.cc:\d{1,5} )NCCL WARN (?!Failed to open|Missing).{0,200}(?:fail|refused|reset|unreachable|closed|time ?out|timed out|no route|abort|broken)/i;

/** What a tracker or an exporter of telemetry cannot send ends no job; where it does, an exception says so. */
function isTracker(text: string): boolean {
  return /^(?:(?:wandb|swanlab|clearml|mlflow): |Failed to export (?:span|metric|trace|log)s? )/.test(text);
}

/** The line is a record of its own, whose level is known. */
export function opensRecord(text: string): boolean {
  const head = text.slice(0, 120);
  return LEVEL.test(head) || LOWER_LEVEL.test(head) || GLOG.test(head);
}

/** Where Python warns from may be a long way down. */
const PYTHON_WARNING = /^\S{1,400}:\d+: \w+Warning: /;

/** A log level of warning or less at the head of the line. */
export function isMild(text: string): boolean {
  if (text.includes('NCCL WARN ') && NCCL_FAILED.test(text.slice(0, 500))) return false;
  const head = text.slice(0, 120);
  if (isTracker(head)) return true;
  const glog = GLOG.exec(head)?.[1];
  if (glog) return glog === 'I' || glog === 'W';
  const level = LEVEL.exec(head)?.[1] ?? LOWER_LEVEL.exec(head)?.[0]?.trim().toUpperCase();
  if (level) return !/ERROR|CRITICAL|FATAL/.test(level);
  return /\w+Warning: /.test(head) || PYTHON_WARNING.test(text);
}
