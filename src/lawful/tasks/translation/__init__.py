"""Translation of sentences with segmentation attention (Kim et al. 2017, section 4.2)."""

from lawful.tasks.translation._corpus import Corpus as Corpus
from lawful.tasks.translation._corpus import read_corpus as read_corpus
from lawful.tasks.translation._task import TranslationConfig as TranslationConfig
from lawful.tasks.translation._task import TranslationTask as TranslationTask
from lawful.tasks.translation._vocabulary import Vocabulary as Vocabulary

__all__ = ["Corpus", "TranslationConfig", "TranslationTask", "Vocabulary", "read_corpus"]
