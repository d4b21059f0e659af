"""Linear evaluation of frozen features."""
