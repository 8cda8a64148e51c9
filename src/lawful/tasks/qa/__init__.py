"""Question answering over stories, from a chain of facts."""

from lawful.tasks.qa._babi import Question as Question
from lawful.tasks.qa._babi import parse_story as parse_story
from lawful.tasks.qa._published import HOPS as HOPS
from lawful.tasks.qa._published import PUBLISHED as PUBLISHED
from lawful.tasks.qa._published import TITLES as TITLES
from lawful.tasks.qa._task import QAConfig as QAConfig
from lawful.tasks.qa._task import QATask as QATask

__all__ = ["HOPS", "PUBLISHED", "TITLES", "QAConfig", "QATask", "Question", "parse_story"]
