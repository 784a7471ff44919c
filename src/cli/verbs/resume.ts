export { resume as default } from '../steer.js';
