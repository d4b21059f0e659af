"""The calls of a method."""


def watch(target, name, note):
    """Note each call of a method before it runs: the list of `note(*arguments)`."""
    method, seen = getattr(target, name), []

    def watched(*arguments):
        seen.append(note(*arguments))
        return method(*arguments)

    setattr(target, name, watched)
    return seen
