"""Treebanks and tagged text: reading, writing back byte for byte, and encoding as numbers."""

from lawful.tasks.treebank._columns import read_columns as read_columns
from lawful.tasks.treebank._conllu import gold_tree as gold_tree
from lawful.tasks.treebank._conllu import read_conllu as read_conllu
from lawful.tasks.treebank._corpus import EMBEDDED as EMBEDDED
from lawful.tasks.treebank._corpus import SPLITS as SPLITS
from lawful.tasks.treebank._corpus import Shares as Shares
from lawful.tasks.treebank._corpus import Table as Table
from lawful.tasks.treebank._corpus import divide as divide
from lawful.tasks.treebank._corpus import read_tables as read_tables
from lawful.tasks.treebank._files import ENDINGS as ENDINGS
from lawful.tasks.treebank._files import File as File
from lawful.tasks.treebank._files import find_files as find_files
from lawful.tasks.treebank._files import read_sentences as read_sentences
from lawful.tasks.treebank._lexicon import Lexicon as Lexicon
from lawful.tasks.treebank._lexicon import Strings as Strings
from lawful.tasks.treebank._lexicon import Words as Words
from lawful.tasks.treebank._sentence import Sentence as Sentence
from lawful.tasks.treebank._tags import TagColumn as TagColumn
from lawful.tasks.treebank._tags import is_bio as is_bio
from lawful.tasks.treebank._tags import spans as spans
from lawful.tasks.treebank._trees import crossing_arc as crossing_arc
from lawful.tasks.treebank._trees import is_punctuation as is_punctuation
from lawful.tasks.treebank._trees import projective as projective

__all__ = [
    "EMBEDDED",
    "ENDINGS",
    "SPLITS",
    "File",
    "Lexicon",
    "Sentence",
    "Shares",
    "Strings",
    "Table",
    "TagColumn",
    "Words",
    "crossing_arc",
    "divide",
    "find_files",
    "gold_tree",
    "is_bio",
    "is_punctuation",
    "projective",
    "read_columns",
    "read_conllu",
    "read_sentences",
    "read_tables",
    "spans",
]
