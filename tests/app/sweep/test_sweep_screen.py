"""What a sweep prints on a terminal."""

import io
from types import SimpleNamespace

from rich.console import Console

from lightning_ssl.app.sweep.screen import new_table, table_cells
from lightning_ssl.app.sweep.state import Trial


def test_a_narrow_terminal_shows_whole_values_and_names():
    name = "002-importance=myloss.Margin-temperature=0.05-seed_everything=1"
    table = new_table(SimpleNamespace(metric="online/top1"))
    row = Trial(1, name, {}, status="finished", value=0.294118, seconds=3.0)
    table.add_row(*table_cells(row, "10/10", "3 s"))
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    header, *lines = console.file.getvalue().splitlines()
    assert "online/top1" in header
    assert lines[0].split()[1:4] == ["finished", "0.2941", "3"]
    assert "".join(line.split()[0] for line in lines) == name
