"""Calls of the driver that take memory in rarer ways, one kind a process: after each, what the ledger holds beside what NVML
shows of the whole device, which is to be idle otherwise. Prints one line of JSON.

    calls.py KIND NVML-LIBRARY [--bare] [--multicast]

--bare: without torch, for a driver that is a stand-in. --multicast: see multicast() below."""

import ctypes
import json
import mmap
import sys
import time

MIB = 2**20
OUT_OF_MEMORY = 2
U64, SIZE, POINTER = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
byref = ctypes.byref


class Skipped(Exception):
    pass


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProp(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("windows", POINTER),
                ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]


class PoolProps(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("windows", POINTER),
                ("largest", SIZE), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]


class AllocNode(ctypes.Structure):
    _fields_ = [("pool", PoolProps), ("access", POINTER), ("accesses", SIZE), ("bytes", SIZE), ("address", U64)]


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("depth", SIZE), ("format", ctypes.c_uint),
                ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


class SparseProperties(ctypes.Structure):
    _fields_ = [("tile", ctypes.c_uint * 3), ("tail_level", ctypes.c_uint), ("tail_size", ctypes.c_ulonglong),
                ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint * 4)]


class Level(ctypes.Structure):
    _fields_ = [("level", ctypes.c_uint), ("layer", ctypes.c_uint), ("offset", ctypes.c_uint * 3),
                ("extent", ctypes.c_uint * 3)]


class Tail(ctypes.Structure):
    _fields_ = [("layer", ctypes.c_uint), ("offset", ctypes.c_ulonglong), ("size", ctypes.c_ulonglong)]


class Piece(ctypes.Union):
    _fields_ = [("level", Level), ("tail", Tail)]


class MapInfo(ctypes.Structure):
    _fields_ = [("resource_type", ctypes.c_int), ("resource", U64), ("piece_type", ctypes.c_int), ("piece", Piece),
                ("operation", ctypes.c_int), ("handle_type", ctypes.c_int), ("handle", U64),
                ("offset", ctypes.c_ulonglong), ("devices", ctypes.c_uint), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_uint * 2)]


class MulticastProp(ctypes.Structure):
    _fields_ = [("devices", ctypes.c_uint), ("size", SIZE), ("handles", ctypes.c_ulonglong),
                ("flags", ctypes.c_ulonglong)]


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


for kind, size in ((AllocationProp, 32), (PoolProps, 88), (AllocNode, 120), (MapInfo, 96), (SparseProperties, 48)):
    assert ctypes.sizeof(kind) == size, (kind, ctypes.sizeof(kind))


class Card:
    """The driver as the process finds it, the ledger's account of the process, and the real NVML's of the device."""

    def __init__(self, library: str, bare: bool):
        self.torch = None
        if not bare:
            import torch

            torch.zeros(1, device="cuda")
            self.torch = torch.__version__
        self.cuda = ctypes.CDLL("libcuda.so.1")
        if bare:
            context = POINTER()
            self.must("cuInit", 0)
            self.must("cuDevicePrimaryCtxRetain", byref(context), 0)
            self.must("cuCtxSetCurrent", context)
        inside = ctypes.CDLL(None)
        self.inside_live, self.inside_refused = inside.oomtune_live, inside.oomtune_refused
        self.inside_live.restype = self.inside_refused.restype = U64
        self.nvml = ctypes.CDLL(library)
        self.handle = POINTER()
        bus = ctypes.create_string_buffer(32)
        self.must("cuDeviceGetPCIBusId", bus, 32, 0)
        assert self.nvml.nvmlInit_v2() == 0
        assert self.nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, byref(self.handle)) == 0
        self.steps = []
        self.begin = self.look()

    def call(self, name: str, *words) -> int:
        try:
            function = getattr(self.cuda, name)
        except AttributeError:
            raise Skipped(f"the driver has no {name}") from None
        result = function(*words)
        if result == 500:
            raise Skipped(f"the driver has no {name}")
        return result

    def must(self, name: str, *words) -> None:
        result = self.call(name, *words)
        if result != 0:
            raise RuntimeError(f"{name} answers {result}")

    def free(self) -> int:
        free, total = SIZE(), SIZE()
        self.must("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def look(self) -> tuple[int, int, int]:
        self.must("cuCtxSynchronize")
        time.sleep(0.2)  # NVML shows what was freed for a moment longer, and the ledger measures again once that is over
        self.free()
        memory = NvmlMemory()
        assert self.nvml.nvmlDeviceGetMemoryInfo(self.handle, byref(memory)) == 0
        return self.inside_live(0), memory.used, self.inside_live(-1)

    def step(self, what: str, result: int = 0, expected: int | None = 0, allocations: int = 1, **figures) -> None:
        """What was done, and what is held more than at the start. `expected` None: either answer will do."""
        ledger, nvml, host = (now - then for now, then in zip(self.look(), self.begin))
        allowed = max(2 * MIB * allocations, abs(nvml) // 100)
        self.steps.append({
            "did": what, "result": result, "ledger": ledger, "nvml": nvml, "host": host, "refused": self.inside_refused(),
            "agrees": abs(ledger - nvml) <= allowed and (expected is None or result == expected), **figures,
        })

    def attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self.must("cuDeviceGetAttribute", byref(value), which, 0)
        return value.value

    def create(self, size: int, usage: int = 0) -> tuple[int, ctypes.c_uint64]:
        prop = AllocationProp(type=1, location=Location(1, 0), usage=usage)
        handle = U64()
        return self.call("cuMemCreate", byref(handle), SIZE(size), byref(prop), U64(0)), handle

    def fill(self, left: int) -> ctypes.c_uint64:
        address = U64()
        self.must("cuMemAlloc_v2", byref(address), SIZE((self.free() - left) // (2 * MIB) * (2 * MIB)))
        return address


def sparse(card: Card) -> None:
    if not card.attribute(112):
        raise Skipped("the device has no sparse arrays")
    size = 64 * MIB
    array = POINTER()
    card.must("cuArray3DCreate_v2", byref(array), byref(ArrayDescriptor(2048, 2048, 0, 0x20, 4, 0x40)))
    card.step("a sparse array of 64 MiB, with nothing behind it")
    properties = SparseProperties()
    card.must("cuArrayGetSparseProperties", byref(properties), array)
    result, handle = card.create(size, usage=1)
    card.step("cuMemCreate of 64 MiB for tiles", result)
    info = MapInfo(resource_type=0, resource=array.value, operation=1, handle_type=0, handle=handle.value, devices=1)
    if properties.tail_level == 0 and properties.tail_size:
        info.piece_type, info.piece.tail = 1, Tail(0, 0, properties.tail_size)
    else:
        info.piece.level = Level(0, 0, (0, 0, 0), (2048, 2048, 1))
    card.step("cuMemMapArrayAsync puts it behind the array", card.call("cuMemMapArrayAsync", byref(info), 1, None),
              tile=list(properties.tile))
    card.step("its handle is released: the array holds it", card.call("cuMemRelease", handle))
    card.step("as much again as is left, and 2 MiB", card.create(card.free() // (2 * MIB) * 2 * MIB + 2 * MIB, 1)[0], OUT_OF_MEMORY)
    info.operation, info.handle = 2, 0
    card.step("cuMemMapArrayAsync takes it away", card.call("cuMemMapArrayAsync", byref(info), 1, None))
    card.step("the array is destroyed", card.call("cuArrayDestroy", array))


def multicast(card: Card) -> None:
    """Left out unless --multicast asks for it: where the GPUs of a host are shared, a program that uses NVLink multicast can
    disturb those of others."""
    if "--multicast" not in sys.argv:
        raise Skipped("not asked for (--multicast)")
    if not card.attribute(132):
        raise Skipped("the device has no multicast")
    size = SIZE()
    prop = MulticastProp(devices=1, size=2 * MIB, handles=0, flags=0)
    card.must("cuMulticastGetGranularity", byref(size), byref(prop), 0)
    prop.size = size.value
    made = U64()
    result = card.call("cuMulticastCreate", byref(made), byref(prop))
    if result != 0:
        raise Skipped(f"cuMulticastCreate answers {result}")
    card.must("cuMulticastAddDevice", made, 0)
    card.step("a multicast object", 0)
    result, memory = card.create(size.value)
    card.step(f"cuMemCreate of {size.value} bytes", result)
    card.step("bound", card.call("cuMulticastBindMem", made, SIZE(0), memory, SIZE(0), size, U64(0)))
    card.step("its handle is released: the object holds it", card.call("cuMemRelease", memory))
    card.step("unbound", card.call("cuMulticastUnbind", made, 0, SIZE(0), size))
    card.step("the object is released", card.call("cuMemRelease", made))


def green(card: Card) -> None:
    resource = ctypes.create_string_buffer(4096)
    description = POINTER()
    card.must("cuDeviceGetDevResource", 0, resource, 1)
    card.must("cuDevResourceGenerateDesc", byref(description), resource, 1)
    made = []

    def create() -> int:
        context = POINTER()
        result = card.call("cuGreenCtxCreate", byref(context), description, 0, 1)
        if result == 0:
            made.append(context)
        return result

    for _ in range(2):
        card.step("cuGreenCtxCreate", create())
    filled = card.fill(left=2 * MIB)
    card.step("all but 2 MiB taken by cuMemAlloc")
    result = 0
    while result == 0 and len(made) < 64:
        result = create()
    card.step("green contexts until one is refused, 64 at most", result, None, contexts=len(made))
    for context in made:
        card.must("cuGreenCtxDestroy", context)
    card.must("cuMemFree_v2", filled)
    card.step("all given back, but for what the driver keeps")


class Graph:
    def __init__(self, card: Card):
        self.card = card
        self.graph = POINTER()
        card.must("cuGraphCreate", byref(self.graph), 0)

    def alloc(self, size: int, after: list) -> tuple[ctypes.c_void_p, int]:
        params = AllocNode(bytes=size)
        params.pool.type, params.pool.location = 1, Location(1, 0)
        node = POINTER()
        needs = (POINTER * len(after))(*after)
        self.card.must("cuGraphAddMemAllocNode", byref(node), self.graph, needs, SIZE(len(after)), byref(params))
        return node, params.address

    def free(self, node: ctypes.c_void_p, address: int) -> ctypes.c_void_p:
        made = POINTER()
        needs = (POINTER * 1)(node)
        self.card.must("cuGraphAddMemFreeNode", byref(made), self.graph, needs, SIZE(1), U64(address))
        return made

    def instantiate(self) -> tuple[int, ctypes.c_void_p]:
        made = POINTER()
        return self.card.call("cuGraphInstantiateWithFlags", byref(made), self.graph, ctypes.c_ulonglong(0)), made


def graphs(card: Card) -> None:
    size = card.free() * 2 // 5 // (2 * MIB) * 2 * MIB  # two fit, three do not
    turns = Graph(card)
    last: list = []
    for _ in range(4):
        node, address = turns.alloc(size, last)
        last = [turns.free(node, address)]
    result, chain = turns.instantiate()
    card.step("a graph of four nodes that take turns, instantiated", result, bytes=size)
    card.step("launched", card.call("cuGraphLaunch", chain, None), allocations=2)
    pair = Graph(card)
    first, address = pair.alloc(size, [])
    second, other = pair.alloc(size, [first])
    pair.free(second, other)
    pair.free(second, address)
    result, both = pair.instantiate()
    card.step("one of two nodes that are there together, instantiated", result, allocations=2)
    card.step("launched: it uses what the first has reserved", card.call("cuGraphLaunch", both, None), allocations=3)
    three = Graph(card)
    nodes: list = []
    for _ in range(3):
        nodes = [three.alloc(size, nodes)[0]]
    result, _ = three.instantiate()
    card.step("one of three nodes that are there together: refused", result, OUT_OF_MEMORY, allocations=3)
    for executable in (chain, both):
        card.must("cuGraphExecDestroy", executable)
    card.step("destroyed and trimmed", card.call("cuDeviceGraphMemTrim", 0), allocations=2)
    result, chain = turns.instantiate()
    filled = card.fill(left=size // 2)
    card.step("the first made again, then all but half of what it needs taken by cuMemAlloc", result, allocations=2)
    card.step("launched: refused", card.call("cuGraphLaunch", chain, None), OUT_OF_MEMORY, allocations=2)
    card.must("cuMemFree_v2", filled)
    card.step("launched when that is free again", card.call("cuGraphLaunch", chain, None), allocations=2)
    card.must("cuGraphExecDestroy", chain)
    card.step("destroyed and trimmed", card.call("cuDeviceGraphMemTrim", 0), allocations=2)


def register(card: Card) -> None:
    size = 256 * MIB
    memory = mmap.mmap(-1, size)
    at = POINTER(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    card.step("cuMemHostRegister of 256 MiB: the host's account, never refused",
              card.call("cuMemHostRegister_v2", at, SIZE(size), 0), allocations=4)
    card.steps[-1]["agrees"] &= card.steps[-1]["host"] == size
    card.step("unregistered", card.call("cuMemHostUnregister", at), allocations=4)
    card.steps[-1]["agrees"] &= card.steps[-1]["host"] == 0


# Asks for a megabyte of the kernels' heap.
HEAP = b"""
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 func_retval0) malloc (.param .b64 malloc_param_0);
.visible .entry take(.param .u64 out) {
  .reg .b64 %rd<4>;
  mov.u64 %rd1, 1048576;
  {
    .param .b64 param0;
    .param .b64 retval0;
    st.param.b64 [param0+0], %rd1;
    call.uni (retval0), malloc, (param0);
    ld.param.b64 %rd2, [retval0+0];
  }
  ld.param.u64 %rd3, [out];
  st.global.u64 [%rd3], %rd2;
  ret;
}
"""


def heap(card: Card) -> None:
    limit = 2
    card.step("a heap of 64 GiB for kernels: refused", card.call("cuCtxSetLimit", limit, SIZE(64 * 1024 * MIB)), OUT_OF_MEMORY)
    card.step("one of 512 MiB", card.call("cuCtxSetLimit", limit, SIZE(512 * MIB)), allocations=4)
    module, function, out = POINTER(), POINTER(), U64()
    card.must("cuModuleLoadData", byref(module), HEAP)
    if card.torch is None:
        card.step("a kernel that asks for it is loaded", allocations=4)
        return
    card.must("cuModuleGetFunction", byref(function), module, b"take")
    card.must("cuMemAlloc_v2", byref(out), SIZE(8))
    words = (POINTER * 1)(ctypes.cast(byref(out), POINTER))
    card.must("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, words, None)
    got = U64()
    card.must("cuMemcpyDtoH_v2", byref(got), out, SIZE(8))
    card.step("a kernel that asks for it is loaded and run", allocations=4, got=got.value != 0)
    filled = card.fill(left=64 * MIB)
    card.step("all but 64 MiB taken by cuMemAlloc", allocations=4)
    address = U64()
    card.step("128 MiB more: refused", card.call("cuMemAlloc_v2", byref(address), SIZE(128 * MIB)), OUT_OF_MEMORY, allocations=4)
    card.must("cuMemFree_v2", filled)


def pools(card: Card) -> None:
    made = []
    for _ in range(300):
        props = PoolProps(type=1, location=Location(1, 0))
        pool = POINTER()
        card.must("cuMemPoolCreate", byref(pool), byref(props))
        made.append(pool)
    card.step("300 pools")
    held = []

    def take(pool: ctypes.c_void_p) -> int:
        address = U64()
        result = card.call("cuMemAllocFromPoolAsync", byref(address), SIZE(40 * MIB), pool, None)
        if result == 0:
            held.append(address)
        return result

    for pool in made[-5:]:
        card.must("cuMemAllocFromPoolAsync", byref(address := U64()), SIZE(40 * MIB), pool, None)
        held.append(address)
    card.step("40 MiB from each of the last five", allocations=5)
    result = 0
    for pool in reversed(made[:-5]):
        result = take(pool)
        if result != 0:
            break
    card.step("and from more of them, until it is refused", result, OUT_OF_MEMORY, len(held), allocated=len(held))
    for address in held:
        card.must("cuMemFreeAsync", address, None)
    card.must("cuCtxSynchronize")
    for pool in made:
        card.must("cuMemPoolDestroy", pool)
    card.step("all freed and destroyed")


def first(card: Card) -> None:
    """The forms of CUDA's first version, with addresses of 32 bits; a driver may refuse them all the same."""
    address, pitch, word = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    result = card.call("cuMemAlloc", byref(address), ctypes.c_uint(64 * MIB))
    card.step("cuMemAlloc of 64 MiB", result, None)
    if result == 0:  # of an address that does not fit into 32 bits the rest is lost: it cannot be freed then
        card.step("cuMemFree", card.call("cuMemFree", address), None)
    result = card.call("cuMemAllocPitch", byref(address), byref(pitch), ctypes.c_uint(8192), ctypes.c_uint(8192), ctypes.c_uint(4))
    card.step("cuMemAllocPitch of 64 MiB", result, None)
    if result == 0:  # of an address that does not fit into 32 bits the rest is lost: it cannot be freed then
        card.step("cuMemFree", card.call("cuMemFree", address), None)
    card.step("cuMemAlloc of 3 GiB: refused", card.call("cuMemAlloc", byref(address), ctypes.c_uint(3 * 1024 * MIB)), OUT_OF_MEMORY)
    host = POINTER()
    result = card.call("cuMemAllocHost", byref(host), ctypes.c_uint(16 * MIB))
    card.step("cuMemAllocHost of 16 MiB", result, None, 4)
    if result == 0:
        card.steps[-1]["agrees"] &= card.steps[-1]["host"] == 16 * MIB
        card.must("cuMemFreeHost", host)
    for name, words in (("cuMemGetInfo", (byref(address), byref(word))), ("cuDeviceTotalMem", (byref(word), 0))):
        card.step(name, card.call(name, *words), None, 4, says=word.value)


KINDS = {one.__name__: one for one in (sparse, multicast, green, graphs, register, heap, pools, first)}


def main() -> None:
    kind, library = sys.argv[1:3]
    card = Card(library, "--bare" in sys.argv)
    report = {"kind": kind, "torch": card.torch, "context": card.begin[0]}
    try:
        KINDS[kind](card)
    except Skipped as why:
        report["left_out"] = str(why)
    except RuntimeError as why:
        report["failed"] = str(why)
    print(json.dumps({**report, "steps": card.steps}), flush=True)


if __name__ == "__main__":
    main()
