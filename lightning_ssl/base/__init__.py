"""What every room may import: objects and their plain trees, the arguments of classes, values from text."""
