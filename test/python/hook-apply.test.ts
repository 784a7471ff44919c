import { hookCases } from './hook-cases.js';

hookCases('apply');
