import { steer } from '../steer.js';

export default steer('hold', 'held');
