"""Forecasting of fields: equations with exact solutions, moving pictures, the user's arrays."""

from lawful.tasks.fields._arrays import read_recordings as read_recordings
from lawful.tasks.fields._config import FieldsConfig as FieldsConfig
from lawful.tasks.fields._equations import solutions as solutions
from lawful.tasks.fields._pictures import moving_digits as moving_digits
from lawful.tasks.fields._task import FieldsTask as FieldsTask

__all__ = ["FieldsConfig", "FieldsTask", "moving_digits", "read_recordings", "solutions"]
