"""Fresh processes by fork instead of another start: the process that was started runs the script up to its first use of the
device and waits there; each fork (a life) goes on from that line."""
