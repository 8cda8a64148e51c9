"""Character language modelling: predict each character of a text from those before it."""

from lawful.tasks.charlm._task import CharLMConfig as CharLMConfig
from lawful.tasks.charlm._task import CharLMTask as CharLMTask
from lawful.tasks.charlm._text import Alphabet as Alphabet
from lawful.tasks.charlm._text import ptb_characters as ptb_characters
from lawful.tasks.charlm._text import read_texts as read_texts

__all__ = ["Alphabet", "CharLMConfig", "CharLMTask", "ptb_characters", "read_texts"]
