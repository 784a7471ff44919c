import { join } from 'node:path';

/** For PYTHONPATH: a script ends without looking for garbage in all that it has imported. */
export const QUICK_END = join(import.meta.dirname, 'quick-end');
