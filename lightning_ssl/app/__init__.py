"""Everything that knows a command line, a run folder, a process or a server. The library imports nothing of it."""
