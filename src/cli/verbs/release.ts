import { steer } from '../steer.js';

export default steer('release', 'released');
