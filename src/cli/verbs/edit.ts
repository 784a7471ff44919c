export { edit as default } from '../steer.js';
