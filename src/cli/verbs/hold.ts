export { hold as default } from '../steer.js';
