"""Studies without training: an engine that writes its runs at once, tuning files, and results of losses with seeds."""
