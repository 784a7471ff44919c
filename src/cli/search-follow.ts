import { plain } from '../common/terminal.js';
import type { JobRecord } from '../contract/job.js';
import { asRecord } from '../contract/measurement.js';
import type { Paint } from './output.js';
import { probeLine } from './progress.js';
import { settingWords } from './words.js';

/** Tells of a job's search while its output is followed: what is printed meanwhile is that of launches which only measure. */
export class SearchFollow {
  #searching = false;
  #launches = 0;
  #probes = 0;

  constructor(
    private readonly note: (text: string) => void,
    private readonly paint: Paint,
  ) {}

  look(sent: Pick<JobRecord, 'job' | 'state' | 'journal' | 'launches' | 'config'>): void {
    const { job, state, journal, launches, config } = plain(sent);
    if (state === 'searching' && !this.#searching) {
      this.#searching = true;
      this.note(`${job} is being searched for its configuration; what it prints meanwhile is that of trial launches`);
    }
    if (!this.#searching) return;
    for (const { launch, purpose } of launches.slice(this.#launches))
      if (purpose === 'search') this.note(`launch ${launch} of the search`);
    this.#launches = launches.length;
    for (const observation of journal.slice(this.#probes)) this.note(probeLine(asRecord(observation), 0, this.paint));
    this.#probes = journal.length;
    if (state === 'searching') return;
    this.#searching = false;
    if (state === 'running' && config !== null)
      this.note(`the search is done: ${job} runs with ${settingWords(config)}`);
  }
}
