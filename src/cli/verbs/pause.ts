export { pause as default } from '../steer.js';
