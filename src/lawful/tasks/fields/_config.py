"""Settings of the forecasting task."""

from dataclasses import dataclass, replace
from typing import Literal

from lawful.errors import expected
from lawful.tasks.fields._arrays import Layout
from lawful.tasks.fields._pictures import SIDE

Generator = Literal["wave", "schroedinger", "advection", "moving-digits", "recall"]


@dataclass(frozen=True)
class FieldsConfig:
    """Which films, how much of them is observed, and how much is forecast."""

    generate: Generator = "wave"
    """Without --data: exact solutions of the wave, the free Schroedinger or the advection
    equation; digits moving on a canvas; or a picture to recall after --blanks blank frames."""
    observe: int = 0
    """Frames observed before the forecast; 0 for 10 (recall: all up to the question)."""
    horizon: int = 0
    """Frames forecast in validation and test; 0 for 100 (10 of moving digits and of files, 1 of
    recall)."""
    train_horizon: int = 0
    """Frames forecast in training; 0 for 20 (10 of moving digits and of files, 1 of recall)."""
    space: Literal[1, 2, 3] = 1
    """Axes of space of the generated equations."""
    lattice: int = 0
    """Sites on each axis; 0 for 64 in one dimension, 32 in two, 16 in three, 24 of a canvas."""
    modes: int = 8
    """Highest wave number of the equations' initial fields, below half the sites."""
    speed: float = 0.5
    """Sites per frame: of waves, of the flow, of digits (in the Schroedinger equation, sites
    squared per frame)."""
    digits: int = 1
    """How many digits move."""
    walls: bool = True
    """Digits bounce off walls; otherwise the canvas is periodic."""
    blanks: int = 100
    """Blank frames between a picture and its recall."""
    layout: Layout = "auto"
    """First axis of --data: "time" (time x channels x space), "samples" (samples x time x
    channels x space), or "auto": time for arrays of 3 or 4 axes, samples for 5 or 6."""
    valid_size: int = 32
    """Films for validation, where they are generated."""
    test_size: int = 128
    """Films for testing, where they are generated."""

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        least = {"digits": 1, "blanks": 0, "valid_size": 1, "test_size": 1, "modes": 1}
        least |= dict.fromkeys(("observe", "horizon", "train_horizon", "lattice"), 0)
        for name, value in least.items():
            if getattr(self, name) < value:
                want = f"a whole number of at least {value}"
                raise expected(name, want, getattr(self, name))
        if not 0 < self.speed < 1e3:
            raise expected("speed", "a number above 0", self.speed)

    def filled(self, *, from_file: bool) -> "FieldsConfig":
        """The same with every automatic value settled.

        Raises:
            InputError: A lattice too small for its modes or digits.
        """
        pictures = self.generate in ("moving-digits", "recall")
        short = from_file or self.generate == "moving-digits"
        observe, horizon, trained = (10, 10, 10) if short else (10, 100, 20)
        if self.generate == "recall" and not from_file:
            observe, horizon, trained = self.blanks + 1, 1, 1
            if (self.observe or observe, self.horizon or 1, self.train_horizon or 1) != (
                observe,
                horizon,
                trained,
            ):
                want = f"0, or {observe}, 1 and 1 to recall after {self.blanks} blank frames"
                got = (self.observe, self.horizon, self.train_horizon)
                raise expected("observe, horizon and train_horizon", want, got)
        space = 2 if pictures else self.space
        lattice = self.lattice or {1: 64, 2: 32, 3: 16}[space]
        if self.generate == "moving-digits":
            lattice = self.lattice or 24
        elif self.generate == "recall":
            lattice = SIDE
        if not from_file and not pictures and 2 * self.modes >= lattice:
            raise expected("modes", f"below half the {lattice} sites", self.modes)
        if not from_file and lattice < SIDE and pictures:
            raise expected("lattice", f"at least the {SIDE} sites of a digit", lattice)
        return replace(
            self,
            observe=self.observe or observe,
            horizon=self.horizon or horizon,
            train_horizon=self.train_horizon or trained,
            space=space,
            lattice=lattice,
        )
