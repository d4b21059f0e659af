"""Configuration of Sphinx. `make docs` builds the site; a warning is an error."""

import logging
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from generators import api, formulas, outputs, write_all  # noqa: E402

import lightning_ssl  # noqa: E402

project = "lightning_ssl"
version = release = lightning_ssl.__version__
project_copyright = "the authors of lightning_ssl, MIT license"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_generated", "**.ipynb_checkpoints"]
suppress_warnings = ["config.cache"]  # `setup` below cannot be pickled
highlight_language = "text"  # of the equations in docstrings
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]  # types in signatures: torch has no inventory that can be read offline

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS.parent / "build" / "docs" / "notebooks")
nb_execution_timeout = 300  # seconds per cell, on a busy machine; a notebook takes seconds on an idle one
nb_execution_in_temp = True  # an empty folder for each notebook
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # an output can have a table
logging.getLogger("traitlets").setLevel(logging.WARNING)  # it reports every execution

toc_object_entries = False  # every public name is a heading already
smartquotes = False  # it would replace the primes of r' and the quotes of code in tables
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"lightning_ssl {version}"
html_show_sphinx = False
html_domain_indices = False  # a list of modules: the API pages are by public name
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}


def setup(app):
    write_all(DOCS)
    app.connect("autodoc-process-docstring", api.process_docstring)
    app.add_post_transform(formulas.Scripts)
    app.connect("doctree-resolved", outputs.warn_of_hidden_figures)
