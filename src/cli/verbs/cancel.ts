export { cancel as default } from '../steer.js';
