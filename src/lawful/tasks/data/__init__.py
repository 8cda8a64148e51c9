"""Readers of the data that tasks share: labelled pictures from the user's own files."""

from lawful.tasks.data._download import DATASETS as DATASETS
from lawful.tasks.data._download import Remote as Remote
from lawful.tasks.data._download import cache_folder as cache_folder
from lawful.tasks.data._download import fetch as fetch
from lawful.tasks.data._download import fetch_dataset as fetch_dataset
from lawful.tasks.data._folders import SUFFIXES as SUFFIXES
from lawful.tasks.data._folders import as_colour as as_colour
from lawful.tasks.data._folders import as_grey as as_grey
from lawful.tasks.data._folders import decode as decode
from lawful.tasks.data._idx import read_idx as read_idx
from lawful.tasks.data._images import ImageData as ImageData
from lawful.tasks.data._images import ImageSet as ImageSet
from lawful.tasks.data._images import stratified_parts as stratified_parts
from lawful.tasks.data._load import load_digits as load_digits
from lawful.tasks.data._load import load_images as load_images
from lawful.tasks.data._load import read_arrays as read_arrays
from lawful.tasks.data._pictures import Channels as Channels
from lawful.tasks.data._pictures import Pictures as Pictures
from lawful.tasks.data._pictures import fit_picture as fit_picture
from lawful.tasks.data._pictures import load_pictures as load_pictures

__all__ = [
    "DATASETS",
    "SUFFIXES",
    "Channels",
    "ImageData",
    "ImageSet",
    "Pictures",
    "Remote",
    "as_colour",
    "as_grey",
    "cache_folder",
    "decode",
    "fetch",
    "fetch_dataset",
    "fit_picture",
    "load_digits",
    "load_images",
    "load_pictures",
    "read_arrays",
    "read_idx",
    "stratified_parts",
]
