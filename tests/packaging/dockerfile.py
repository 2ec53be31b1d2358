"""Read a Dockerfile, and run its RUN steps without Docker, in a mount namespace with folders of a test as /opt."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its name (empty if it has none), its base, and its instructions with their arguments."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """The arguments of all instructions of a kind."""
        return [value for kind, value in self.steps if kind == instruction]

    def single(self, instruction: str) -> str:
        """The arguments of the only instruction of a kind."""
        (value,) = self.all(instruction)
        return value

    def arguments(self, instruction: str) -> list[str]:
        """The words of an instruction in the form of JSON."""
        arguments: list[str] = json.loads(self.single(instruction))
        return arguments


def stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile."""
    stage_list: list[Stage] = []
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.M)).splitlines()
    for line in filter(None, lines):
        instruction, _, value = line.partition(" ")
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            stage_list.append(Stage(name, base))
        elif stage_list:
            stage_list[-1].steps.append((instruction, value.strip()))
    return stage_list


def context(root: Path, ignore: str, names: Sequence[str]) -> Iterator[str]:
    """Return the files that Docker would send, by the rules of a .dockerignore (the last rule that fits decides)."""
    rules = [line for line in ignore.splitlines() if line and not line.startswith("#")]
    for name in names:
        parts = Path(name).parts
        above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        is_sent = True
        for rule in rules:
            pattern = rule.removeprefix("!").removeprefix("**/")
            candidates = parts if "**/" in rule else above
            if any(fnmatch.fnmatchcase(each, pattern) for each in candidates):
                is_sent = rule.startswith("!")
        if is_sent and (root / name).exists():
            yield name


@dataclass(frozen=True, slots=True)
class Build:
    """The folders of a build: `opt` and `var` are kept from stage to stage, `build` belongs to one stage."""

    folder: Path
    context: Path  # the build context

    def run(self, stage: Stage) -> None:
        """Run the steps of a stage in order."""
        if not (self.folder / "etc").exists():
            shutil.copytree("/etc", self.folder / "etc", symlinks=True)
        work = self.folder / "build" / (stage.name or "last")
        for name in ("opt", "var"):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name).chmod(0o755)  # another user reads it, whatever the umask of this process
        work.mkdir(parents=True)
        for instruction, value in stage.steps:
            if instruction == "COPY":
                self._copy(work, value)
            elif instruction == "RUN":
                self.shell(value, work)

    def _copy(self, work: Path, value: str) -> None:
        *options, source, target = value.split()
        if target.startswith("/"):
            return  # between folders that the stages share here
        origin = (
            self.folder / "build" / options[0].split("=")[1] / Path(source).name if options else self.context / source
        )
        if origin.is_dir():
            shutil.copytree(origin, work / target, symlinks=True, dirs_exist_ok=True)
        else:
            (work / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, work / target)

    def shell(self, command: str, work: Path) -> str:
        """Run a command where /opt, /etc and /var/lib are folders of this build, and return what it prints.

        Raises:
            AssertionError: It fails.
        """
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        (self.folder / "bin").mkdir(exist_ok=True)
        if not (self.folder / "bin" / "python").exists():
            (self.folder / "bin" / "python").symlink_to(base)
        mounts = {"opt": "/opt", "etc": "/etc", "var": "/var/lib"}
        script = "; ".join(
            [
                "umask 022",
                *(f"mount --bind {shlex.quote(f'{self.folder}/{name}')} {at}" for name, at in mounts.items()),
                command,
            ]
        )
        environment = {**os.environ, "PATH": f"{self.folder}/bin:/opt/chainfolio/bin:{os.environ['PATH']}"}
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        command_line = ["unshare", "--mount", "sh", "-euc", script]
        process = subprocess.run(command_line, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"
        return process.stdout
