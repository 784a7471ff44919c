export { defaultName, digest, exactDigest, stemOfCommand } from './digest.js';
export { fill, knobVariables } from './fill.js';
export { recognise } from './recognise.js';
export type { Carrier, CommandPlan, FilledCommand, Knob } from './types.js';
