"""The one reader of arguments: text and flags → a plain tree → checked → objects.

text.py           words of a command line → steps: a key with its value
merge.py          steps → a plain tree, in which later steps win
configuration.py  the configuration of a run: read, completed, built
run_flags.py      the flags that belong to no class: the run's folder, name and logger
flags.py          every flag with its values, its default and its description, from the signatures
help.py           `lightning-ssl fit --help`
known.py          the list of flags, read without torch: wrong flags are refused at once
catalog.py        every name that can be chosen; packaged.py, the files of configs/ and sweeps/
keys.py           which keys belong to the loss; labels.py, the name of a loss; identity.py, when two are the same
"""
