import type { KindName } from '../contract/device-id.js';
import { CPU } from './cpu/index.js';
import { CUDA } from './cuda/index.js';
import type { DeviceKind } from './kind.js';

/** Every kind; a new one is a folder and a line here. Libraries are loaded into a job in this order. */
export const KINDS: Readonly<Record<KindName, DeviceKind>> = { cpu: CPU, cuda: CUDA };
