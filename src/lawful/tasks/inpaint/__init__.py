"""Image completion: hide patches of a picture, and let a network settle on what was there."""

from lawful.tasks.inpaint._fill import harmonic_fill as harmonic_fill
from lawful.tasks.inpaint._masks import Mask as Mask
from lawful.tasks.inpaint._masks import draw_masks as draw_masks
from lawful.tasks.inpaint._predict import InpaintPredictOptions as InpaintPredictOptions
from lawful.tasks.inpaint._task import InpaintConfig as InpaintConfig
from lawful.tasks.inpaint._task import InpaintTask as InpaintTask

__all__ = [
    "InpaintConfig",
    "InpaintPredictOptions",
    "InpaintTask",
    "Mask",
    "draw_masks",
    "harmonic_fill",
]
