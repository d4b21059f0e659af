"""The calls of a method, the operators of torch, and their memory."""

import itertools

from torch.utils._python_dispatch import TorchDispatchMode


def watch(target, name, note):
    """Note each call of a method before it runs: the list of `note(*arguments)`."""
    method, seen = getattr(target, name), []

    def watched(*arguments):
        seen.append(note(*arguments))
        return method(*arguments)

    setattr(target, name, watched)
    return seen


class Operators(TorchDispatchMode):
    """Calls `note(operator, arguments, result)` after each operator."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.note(func, args, result)
        return result


def peak_memory(profile):
    """The largest number of bytes held at once, from torch.profiler.profile(profile_memory=True)."""
    events = profile.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(itertools.accumulate(change for _, change in changes))
