"""All settings of one training run, put together from the task, the model and the loop.

The fields of the three config dataclasses share one flat name space, so that ``--lr`` or
``--hidden-size`` works whichever of them owns it.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from lawful._version import __version__
from lawful.cli._parse import as_arguments, parse, read_config
from lawful.errors import InputError
from lawful.tasks import Task, get_task
from lawful.training import RESUMABLE, RunFolder, TrainConfig


@dataclass(frozen=True)
class RunOptions:
    """Where the run goes and how it starts."""

    data: Path | None = None
    """Your own data; by default what the task embeds or generates."""
    out: Path | None = None
    """Run folder; by default a fresh one under runs/."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint (or start it, if there is none)."""
    seed: int = 0
    """Seed of the data, the initial weights and the order of examples."""
    config: Path | None = None
    """YAML or JSON file of settings; options on the command line win over it."""
    progress: bool = True
    """Show a progress display."""
    report: bool = True
    """Draw the report page at the end; `lawful report` draws it later."""


@dataclass(frozen=True)
class Settings:
    """What `lawful train` needs to know."""

    task_class: type[Task[Any]]
    model: str
    task_config: Any
    model_config: Any
    train_config: TrainConfig
    options: RunOptions

    def as_json(self) -> dict[str, Any]:
        """The form stored in ``config.json``."""
        return {
            "lawful": __version__,
            "task": self.task_class.name,
            "model": self.model,
            "seed": self.options.seed,
            "data": None if self.options.data is None else str(self.options.data.resolve()),
            "task_config": plain(self.task_config),
            "model_config": plain(self.model_config),
            "train_config": plain(self.train_config),
        }

    def defaults(self) -> dict[str, dict[str, Any]]:
        """What the settings are where nobody says otherwise, by part of ``config.json``."""
        model = self.task_class.models[self.model]
        return {
            "task_config": plain(self.task_class.Config()),
            "model_config": plain(model(**self.task_class.model_defaults.get(self.model, {}))),
            "train_config": plain(TrainConfig(**self.task_class.train_defaults)),
        }

    def make_task(self) -> Task[Any]:
        """The task, not loaded yet."""
        return self.task_class(self.task_config, self.options.seed, self.options.data)

    def run_path(self) -> Path:
        """The run folder, made up where none was named."""
        if self.options.out is not None:
            return self.options.out
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        return Path("runs", f"{self.task_class.name}-{self.model}-{stamp}")


def plain(config: Any) -> dict[str, Any]:
    """A config dataclass as JSON-ready values."""
    values = dataclasses.asdict(config)
    return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}


def resolve(task_name: str, args: Sequence[str]) -> Settings:
    """Settings from defaults, then a run folder being resumed, a config file, the command line.

    Raises:
        InputError: Anything unknown, impossible, or at odds with the run being resumed.
    """
    task_class = get_task(task_name)
    first = _first_look(args)
    stored = _stored(first, task_class) if first.resume else None
    from_file = read_config(first.config) if first.config else {}
    model = first.model or from_file.get("model") or (stored and stored["model"])
    model = model or task_class.default_model
    if stored is not None:
        _check_same({"model": (stored["model"], model)})
    early: list[str] = []
    if stored is not None:
        for part in ("task_config", "model_config", "train_config"):
            early += as_arguments(stored[part], first.out)
        early += ["--seed", str(stored["seed"]), "--data", str(stored["data"])]
    if from_file:
        early += as_arguments(from_file, first.config)
    settings = _parse_all(task_class, str(model), [*early, *args])
    if stored is not None:
        _check_resume(stored, settings)
    return settings


def restore(run: RunFolder, data: Path | None = None, changed: Sequence[str] = ()) -> Settings:
    """The settings of a finished or interrupted run, for evaluation and prediction.

    Args:
        run: The run.
        data: Other data than it was trained on.
        changed: Settings of the task that take another value, as "name=value"; several values of
            one setting are divided by commas.
    """
    stored = run.config()
    try:
        task_class = get_task(stored["task"])
        args: list[str] = []
        for part in ("task_config", "model_config", "train_config"):
            args += as_arguments(stored[part], run.path)
        args += ["--seed", str(stored["seed"]), "--model", stored["model"]]
        args += ["--data", str(data or stored["data"])]
        args += _changes(changed, stored["task_config"], task_class.name)
    except (KeyError, TypeError) as error:
        raise InputError(f"run: {run.path / 'config.json'} lacks {error}") from None
    return _parse_all(task_class, stored["model"], args)


def _changes(changed: Sequence[str], known: Mapping[str, Any], task: str) -> list[str]:
    args: list[str] = []
    for item in changed:
        name, sign, value = item.partition("=")
        name = name.strip("-").replace("-", "_")
        if not sign or name not in known:
            names = ", ".join(known)
            raise InputError(f"set: expected name=value with one of {names} ({task}), got {item}")
        if isinstance(known[name], bool):
            args += as_arguments({name: value.lower() in ("true", "yes", "1")}, Path("set"))
        else:
            parts = value.split(",") if isinstance(known[name], list) else [value]
            args += [f"--{name.replace('_', '-')}", *parts]
    return args


def _first_look(args: Sequence[str]) -> argparse.Namespace:
    """The few options that decide what the others are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    try:
        known, _ = parser.parse_known_args(args)
    except (argparse.ArgumentError, SystemExit):
        return argparse.Namespace(model=None, config=None, out=None, resume=False)
    return known


def _stored(first: argparse.Namespace, task_class: type[Task[Any]]) -> dict[str, Any] | None:
    if first.out is None:
        raise InputError("resume: name the run folder to continue with --out")
    if not (first.out / "config.json").is_file():
        return None
    stored = RunFolder.open(first.out).config()
    if stored.get("task") != task_class.name:
        raise InputError(
            f"resume: {first.out} holds a run of task {stored.get('task')!r}, "
            f"not {task_class.name!r}"
        )
    return stored


def _check_resume(stored: Mapping[str, Any], settings: Settings) -> None:
    """Refuses to continue a run under other settings than it was started with."""
    now, defaults = settings.as_json(), settings.defaults()
    pairs = {name: (stored[name], now[name]) for name in ("seed", "data")}
    for part in ("task_config", "model_config", "train_config"):
        for name, value in now[part].items():
            if name not in RESUMABLE:
                # A setting that this run's version did not have yet was, in effect, its default.
                pairs[name] = (stored[part].get(name, defaults[part].get(name)), value)
    _check_same(pairs)


def _check_same(pairs: Mapping[str, tuple[Any, Any]]) -> None:
    for name, (old, new) in pairs.items():
        if _norm(old) != _norm(new):
            raise InputError(
                f"resume: the run was started with {name}={old}, not {new}; "
                "start a new run in another folder to change it"
            )


def _norm(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parse_all(task_class: type[Task[Any]], model: str, args: Sequence[str]) -> Settings:
    from tyro.conf import OmitArgPrefixes, arg

    if model not in task_class.models:
        allowed = ", ".join(sorted(task_class.models))
        raise InputError(
            f"model: {model!r} is not one of the models of {task_class.name}: {allowed}"
        )
    model_class = task_class.models[model]
    defaults = {
        "run": RunOptions(),
        "task": task_class.Config(),
        "network": model_class(**task_class.model_defaults.get(model, {})),
        "training": TrainConfig(**task_class.train_defaults),
    }
    names: Any = Annotated[Literal[tuple(task_class.models)], arg(help="Which network to train.")]
    fields: list[Any] = [("model", names, dataclasses.field(default=model))]
    for name, value in defaults.items():
        kind: Any = OmitArgPrefixes[type(value)]  # type: ignore[misc]
        fields.append((name, kind, dataclasses.field(default=value)))
    cls: Any = dataclasses.make_dataclass("Train", fields, frozen=True)
    got = parse(
        cls,
        args,
        prog=f"lawful train {task_class.name}",
        description=f"{task_class.summary}\n\nData: {task_class.data_help}",
        default=cls(model=model, **defaults),
    )
    return Settings(task_class, got.model, got.task, got.network, got.training, got.run)
