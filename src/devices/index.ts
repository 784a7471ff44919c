import type { KindName } from '../contract/device-id.js';
import { CPU } from './cpu/index.js';
import { CUDA } from './cuda/index.js';
import type { DeviceKind } from './kind.js';

/** Every kind that there is: a new one is a folder here, and a line. In this order their libraries are loaded into a job. */
export const KINDS: Readonly<Record<KindName, DeviceKind>> = { cpu: CPU, cuda: CUDA };
