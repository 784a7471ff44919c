import { steer } from '../steer.js';

export default steer('cancel', 'cancelled');
