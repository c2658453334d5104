# SPDX-License-Identifier: GPL-2.0
"""A Vulkan program without a display, by ctypes: fills a buffer and clears an image on the GPU,
looks at what is in them, and takes device memory until it is refused. Needs the loader
(libvulkan.so.1). Prints JSON.

    vulkan.py [PIECE_MIB [MOST_PIECES]]
"""

import ctypes
import json
import sys
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_float,
    c_int32,
    c_uint32,
    c_uint64,
    c_void_p,
)

VK = ctypes.CDLL("libvulkan.so.1")
OUT_OF_DEVICE_MEMORY = -2
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT = 1, 2, 4
GRAPHICS = 1
TRANSFER_SRC, TRANSFER_DST = 1, 2
UNDEFINED, SRC_OPTIMAL, DST_OPTIMAL = 0, 6, 7
COLOR = 1
RGBA8 = 37
WORD = 0x01020304
SIDE = 512


class Failed(Exception):
    """A call that failed."""

    def __init__(self, name, code):
        self.code = code
        super().__init__(f"{name}: {code}")


def vk(name, *arguments):
    """A call that says whether it worked."""
    code = getattr(VK, name)(*arguments)
    if code < 0:
        raise Failed(name, code)


def struct(name, *fields):
    """A structure of C."""
    return type(name, (Structure,), {"_fields_": [(field, kind) for kind, field in fields]})


HEAD = ((c_uint32, "type"), (c_void_p, "next"))
FLAGGED = (*HEAD, (c_uint32, "flags"))
Application = struct(
    "Application",
    *HEAD,
    (c_char_p, "name"),
    (c_uint32, "version"),
    (c_char_p, "engine"),
    (c_uint32, "engine_version"),
    (c_uint32, "api"),
)
Names = (
    (c_uint32, "layers"),
    (c_void_p, "layer_names"),
    (c_uint32, "extensions"),
    (c_void_p, "extension_names"),
)
InstanceInfo = struct("InstanceInfo", *FLAGGED, (POINTER(Application), "application"), *Names)
QueueInfo = struct(
    "QueueInfo",
    *FLAGGED,
    (c_uint32, "family"),
    (c_uint32, "count"),
    (POINTER(c_float), "priorities"),
)
DeviceInfo = struct(
    "DeviceInfo",
    *FLAGGED,
    (c_uint32, "queues"),
    (POINTER(QueueInfo), "queue_infos"),
    *Names,
    (c_void_p, "features"),
)
Family = struct(
    "Family",
    (c_uint32, "flags"),
    (c_uint32, "count"),
    (c_uint32, "bits"),
    (c_uint32 * 3, "granularity"),
)
MemoryType = struct("MemoryType", (c_uint32, "flags"), (c_uint32, "heap"))
Heap = struct("Heap", (c_uint64, "size"), (c_uint32, "flags"))
Memories = struct(
    "Memories",
    (c_uint32, "type_count"),
    (MemoryType * 32, "types"),
    (c_uint32, "heap_count"),
    (Heap * 16, "heaps"),
)
Allocation = struct("Allocation", *HEAD, (c_uint64, "size"), (c_uint32, "memory_type"))
Needs = struct("Needs", (c_uint64, "size"), (c_uint64, "alignment"), (c_uint32, "types"))
Shared = ((c_uint32, "sharing"), (c_uint32, "family_count"), (c_void_p, "families"))
BufferInfo = struct("BufferInfo", *FLAGGED, (c_uint64, "size"), (c_uint32, "usage"), *Shared)
ImageInfo = struct(
    "ImageInfo",
    *FLAGGED,
    (c_uint32, "dimensions"),
    (c_uint32, "format"),
    (c_uint32 * 3, "extent"),
    (c_uint32, "levels"),
    (c_uint32, "layers"),
    (c_uint32, "samples"),
    (c_uint32, "tiling"),
    (c_uint32, "usage"),
    *Shared,
    (c_uint32, "layout"),
)
PoolInfo = struct("PoolInfo", *FLAGGED, (c_uint32, "family"))
CommandsInfo = struct(
    "CommandsInfo", *HEAD, (c_uint64, "pool"), (c_uint32, "level"), (c_uint32, "count")
)
BeginInfo = struct("BeginInfo", *FLAGGED, (c_void_p, "inheritance"))
Range = struct(
    "Range",
    (c_uint32, "aspect"),
    (c_uint32, "level"),
    (c_uint32, "levels"),
    (c_uint32, "layer"),
    (c_uint32, "layers"),
)
ImageBarrier = struct(
    "ImageBarrier",
    *HEAD,
    (c_uint32, "before"),
    (c_uint32, "after"),
    (c_uint32, "old"),
    (c_uint32, "new"),
    (c_uint32, "from_family"),
    (c_uint32, "to_family"),
    (c_uint64, "image"),
    (Range, "range"),
)
MemoryBarrier = struct("MemoryBarrier", *HEAD, (c_uint32, "before"), (c_uint32, "after"))
BufferCopy = struct("BufferCopy", (c_uint64, "source"), (c_uint64, "target"), (c_uint64, "size"))
ImageCopy = struct(
    "ImageCopy",
    (c_uint64, "offset"),
    (c_uint32 * 2, "lengths"),
    (c_uint32 * 4, "layers"),
    (c_int32 * 3, "at"),
    (c_uint32 * 3, "extent"),
)
Submission = struct(
    "Submission",
    *HEAD,
    (c_uint32, "waits"),
    (c_void_p, "wait_semaphores"),
    (c_void_p, "wait_stages"),
    (c_uint32, "count"),
    (POINTER(c_void_p), "commands"),
    (c_uint32, "signals"),
    (c_void_p, "signal_semaphores"),
)
TRANSFER_STAGE = 0x1000
TRANSFER_READ, TRANSFER_WRITE = 0x800, 0x1000
WHOLE = Range(COLOR, 0, 1, 0, 1)


class Gpu:
    """The first GPU, a device on it and a queue."""

    def __init__(self):
        application = Application(type=0, api=1 << 22 | 1 << 12)
        self.instance = c_void_p()
        info = InstanceInfo(type=1, application=ctypes.pointer(application))
        vk("vkCreateInstance", byref(info), None, byref(self.instance))
        count = c_uint32(16)
        found = (c_void_p * 16)()
        vk("vkEnumeratePhysicalDevices", self.instance, byref(count), found)
        self.count = count.value
        self.physical = c_void_p(found[0])
        properties = ctypes.create_string_buffer(4096)
        VK.vkGetPhysicalDeviceProperties(self.physical, properties)
        self.name = ctypes.string_at(ctypes.addressof(properties) + 20).decode()
        self.memories = Memories()
        VK.vkGetPhysicalDeviceMemoryProperties(self.physical, byref(self.memories))
        count = c_uint32(16)
        families = (Family * 16)()
        VK.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, byref(count), families)
        self.family = next(i for i in range(count.value) if families[i].flags & GRAPHICS)
        priority = c_float(1)
        queue = QueueInfo(type=2, family=self.family, count=1, priorities=ctypes.pointer(priority))
        info = DeviceInfo(type=3, queues=1, queue_infos=ctypes.pointer(queue))
        self.device = c_void_p()
        vk("vkCreateDevice", self.physical, byref(info), None, byref(self.device))
        self.queue = c_void_p()
        VK.vkGetDeviceQueue(self.device, self.family, 0, byref(self.queue))

    def memory_type(self, flags, allowed=0xFFFFFFFF):
        """The first kind of memory with these flags."""
        types = range(self.memories.type_count)
        return next(
            i for i in types if allowed >> i & 1 and self.memories.types[i].flags & flags == flags
        )

    def allocate(self, size, memory_type):
        """Memory."""
        at = c_uint64()
        info = Allocation(type=5, size=size, memory_type=memory_type)
        vk("vkAllocateMemory", self.device, byref(info), None, byref(at))
        return at

    def place(self, kind, thing, flags):
        """Memory for a buffer or an image."""
        needs = Needs()
        getattr(VK, f"vkGet{kind}MemoryRequirements")(self.device, thing, byref(needs))
        memory = self.allocate(needs.size, self.memory_type(flags, needs.types))
        vk(f"vkBind{kind}Memory", self.device, thing, memory, c_uint64(0))
        return memory

    def buffer(self, size, flags):
        """A buffer and its memory."""
        at = c_uint64()
        info = BufferInfo(type=12, size=size, usage=TRANSFER_SRC | TRANSFER_DST)
        vk("vkCreateBuffer", self.device, byref(info), None, byref(at))
        return at, self.place("Buffer", at, flags)

    def image(self):
        """A square of pixels and its memory."""
        at = c_uint64()
        info = ImageInfo(
            type=14,
            dimensions=1,
            format=RGBA8,
            extent=(SIDE, SIDE, 1),
            levels=1,
            layers=1,
            samples=1,
            usage=TRANSFER_SRC | TRANSFER_DST,
        )
        vk("vkCreateImage", self.device, byref(info), None, byref(at))
        return at, self.place("Image", at, DEVICE_LOCAL)

    def run(self, record):
        """Has the GPU do what `record` writes into a list of commands, and waits."""
        pool = c_uint64()
        vk(
            "vkCreateCommandPool",
            self.device,
            byref(PoolInfo(type=39, family=self.family)),
            None,
            byref(pool),
        )
        commands = c_void_p()
        info = CommandsInfo(type=40, pool=pool, level=0, count=1)
        vk("vkAllocateCommandBuffers", self.device, byref(info), byref(commands))
        vk("vkBeginCommandBuffer", commands, byref(BeginInfo(type=42, flags=1)))
        record(commands)
        vk("vkEndCommandBuffer", commands)
        submission = Submission(type=4, count=1, commands=ctypes.pointer(commands))
        vk("vkQueueSubmit", self.queue, 1, byref(submission), c_uint64(0))
        vk("vkQueueWaitIdle", self.queue)
        VK.vkDestroyCommandPool(self.device, pool, None)


def barrier(commands, image=None, old=0, new=0):
    """Everything before is done and seen by everything after; an image changes its layout."""
    every = MemoryBarrier(type=46, before=TRANSFER_WRITE, after=TRANSFER_READ | TRANSFER_WRITE)
    images = ImageBarrier(
        type=45,
        before=TRANSFER_WRITE,
        after=TRANSFER_READ | TRANSFER_WRITE,
        old=old,
        new=new,
        image=image or 0,
        range=WHOLE,
    )
    images.from_family = images.to_family = 0xFFFFFFFF
    count = 0 if image is None else 1
    VK.vkCmdPipelineBarrier(
        commands, TRANSFER_STAGE, TRANSFER_STAGE, 0, 1, byref(every), 0, None, count, byref(images)
    )


def draw(gpu, size):
    """Fills a buffer, clears an image, and copies both to where they can be looked at: whether they
    are right."""
    filled, filled_memory = gpu.buffer(size, DEVICE_LOCAL)
    image, image_memory = gpu.image()
    pixels = SIDE * SIDE * 4
    seen, seen_memory = gpu.buffer(size + pixels, HOST_VISIBLE | HOST_COHERENT)

    def record(commands):
        VK.vkCmdFillBuffer(commands, filled, c_uint64(0), c_uint64(size), WORD)
        barrier(commands, image, UNDEFINED, DST_OPTIMAL)
        color = (c_float * 4)(1.0, 0.0, 1.0, 0.0)
        VK.vkCmdClearColorImage(commands, image, DST_OPTIMAL, color, 1, byref(WHOLE))
        barrier(commands, image, DST_OPTIMAL, SRC_OPTIMAL)
        VK.vkCmdCopyBuffer(commands, filled, seen, 1, byref(BufferCopy(0, 0, size)))
        copy = ImageCopy(offset=size, layers=(COLOR, 0, 0, 1), extent=(SIDE, SIDE, 1))
        VK.vkCmdCopyImageToBuffer(commands, image, SRC_OPTIMAL, seen, 1, byref(copy))

    gpu.run(record)
    at = c_void_p()
    vk("vkMapMemory", gpu.device, seen_memory, c_uint64(0), c_uint64(size + pixels), 0, byref(at))
    data = ctypes.string_at(at, size + pixels)
    VK.vkUnmapMemory(gpu.device, seen_memory)
    for buffer in (filled, seen):
        VK.vkDestroyBuffer(gpu.device, buffer, None)
    VK.vkDestroyImage(gpu.device, image, None)
    for memory in (filled_memory, image_memory, seen_memory):
        VK.vkFreeMemory(gpu.device, memory, None)
    right = WORD.to_bytes(4, "little") * (size // 4) + bytes((255, 0, 255, 0)) * (SIDE * SIDE)
    return data == right


def take(gpu, piece, most):
    """Takes pieces of device memory until it is refused; how many, why no more, and how many again
    after all were freed."""
    kind = gpu.memory_type(DEVICE_LOCAL)
    counts, refusal = [], None
    for _ in range(2):
        pieces = []
        try:
            while len(pieces) < most:
                pieces.append(gpu.allocate(piece, kind))
        except Failed as failure:
            refusal = (
                "VK_ERROR_OUT_OF_DEVICE_MEMORY"
                if failure.code == OUT_OF_DEVICE_MEMORY
                else failure.code
            )
        counts.append(len(pieces))
        for memory in pieces:
            VK.vkFreeMemory(gpu.device, memory, None)
    return counts, refusal


def main():
    """Runs."""
    piece = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
    most = int(sys.argv[2] if len(sys.argv) > 2 else 256)
    gpu = Gpu()
    seen = {"gpus": gpu.count, "name": gpu.name, "data_is_right": draw(gpu, 16 << 20)}
    heaps = gpu.memories.heaps[: gpu.memories.heap_count]
    seen["heaps"] = [heap.size for heap in heaps if heap.flags & 1]
    (seen["pieces"], seen["taken_again"]), seen["refusal"] = take(gpu, piece, most)
    VK.vkDestroyDevice(gpu.device, None)
    VK.vkDestroyInstance(gpu.instance, None)
    print(json.dumps(seen))


main()
