"""The page of a report, read as a browser reads it."""

import html.parser
import json
from pathlib import Path


class Page(html.parser.HTMLParser):
    """The elements, scripts and text of a page."""

    def __init__(self, file):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.text, self.inside = [], [], [], []
        self.feed(Path(file).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.inside.append(tag)
            self.scripts.append("")

    def handle_endtag(self, tag):
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data
        else:
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    @property
    def data(self):
        return json.loads(next(script for script in self.scripts if script.startswith('{"metric"')))
