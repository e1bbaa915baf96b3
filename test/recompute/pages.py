"""Reads numbers and rules from the tables of the pages in docs/, so that this program follows the pages and not the code."""

import re
from pathlib import Path


class Pages:
    """The Markdown pages of a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def tables(self, page, heading):
        """Returns the tables under a heading, each as a list of rows by column name. Code spans lose their backticks."""
        text = (self.folder / page).read_text()
        found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", text, re.M | re.S)
        if found is None:
            raise KeyError(f"{page} has no heading {heading}")
        tables, rows = [], []
        for line in [*found[2].split("\n"), ""]:
            if line.startswith("|"):
                rows.append([cell.strip() for cell in line.strip("|\n ").split(" | ")])
            elif rows:
                names = rows[0]
                tables.append([dict(zip(names, row)) for row in rows[2:]])
                rows = []
        return tables

    def table(self, page, heading):
        return self.tables(page, heading)[0]

    def numbers(self, page, heading, name, value):
        """Returns a table of names and values as a dict. A value that starts with a number is that number."""
        return {plain(row[name]): number(row[value]) for row in self.table(page, heading)}

    def list_after(self, page, words):
        """Returns the code spans of the list that follows these words, up to the end of the sentence."""
        text = re.sub(r"\s+", " ", (self.folder / page).read_text())
        return re.findall(r"`([^`]+)`", text.split(words, 1)[1].split(". ", 1)[0])


def plain(cell):
    return cell.replace("`", "")


def number(cell):
    found = re.match(r"\d+(?:\.\d+)?", cell)
    return float(found[0]) if found else cell


def spans(cell):
    """Returns the code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)
