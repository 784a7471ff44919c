export { release as default } from '../steer.js';
