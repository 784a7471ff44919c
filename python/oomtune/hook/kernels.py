"""oneDNN keeps a compiled kernel, with its working memory, for each shape that it has met: after other sizes a process
holds more on the CPU than a fresh one would."""

import ctypes


class Kernels:
    """Forgets them; where the library cannot be reached nothing happens."""

    def __init__(self):
        self._library = _library()

    def forget(self):
        if self._library is None:
            return
        capacity = ctypes.c_int()
        if self._library.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity)) == 0:
            self._library.dnnl_set_primitive_cache_capacity(0)
            self._library.dnnl_set_primitive_cache_capacity(capacity)


def _library():
    """Its own, or the part of torch that it was built into."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "dnnl" in line or "torch_cpu" in line}
    except OSError:
        return None
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
            library.dnnl_set_primitive_cache_capacity.argtypes = [ctypes.c_int]
            library.dnnl_get_primitive_cache_capacity.argtypes = [ctypes.POINTER(ctypes.c_int)]
            return library
        except (OSError, AttributeError):
            continue
    return None
