"""The image, built by buildah from the Dockerfile on a Debian base, and its commands, run by bubblewrap.

Neither needs an engine. buildah's storage is a temporary folder, so that nothing stays on the machine.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from helpers import ROOT

PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap", "bwrap": "bubblewrap"}  # and their Debian packages
BASE_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,git"
COPIED = ("Dockerfile", ".dockerignore", "deploy", "requirements.txt", "pyproject.toml", "setup.py", "README.md",
          "LICENSE", "configs", "sweeps", "lightning_ssl")  # fmt: skip
SECRET = "made-up-secret-8d41f7"  # in pip.conf and in the files of TRAPS
TRAPS = (".env", "wandb/settings", "runs/one/config.yaml", "data/images", "lightning_ssl/.env", "configs/.netrc")
COMMIT = "0123abc"
IMAGE = "localhost/lightning-ssl"


def command(*words, **options):
    """Run a program and return its output. The error of a failed one shows the output's end."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, folder):
        self.folder, self.environment = folder, {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *words):
        store = ("--root", self.folder / "storage", "--runroot", self.folder / "runroot")
        return command("buildah", *store, *words, env=self.environment).strip()

    def import_base(self):
        """A Debian base with Python as the image `localhost/base`.

        As some images of others do, it has another user than root, and a folder /workspace.
        """
        root = self.folder / "base"
        # A mount namespace of its own: debootstrap mounts /proc into the folder.
        command(
            "unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", root
        )
        container = self("from", "scratch")
        (root / "workspace").mkdir()
        self("add", "--quiet", container, root, "/")
        self("config", "--user=1000:1000", container)
        self("commit", "--quiet", "--rm", container, "localhost/base")
        shutil.rmtree(root)

    def build(self, context):
        """Build the Dockerfile of a folder. Return the log."""
        secret, volumes = self.pip_configuration()
        flags = ["--build-arg=BASE=localhost/base", f"--build-arg=COMMIT={COMMIT}", f"--secret=id=pip,src={secret}"]
        return self("build", "--layers", *flags, *volumes, "--tag", IMAGE, context)

    def pip_configuration(self):
        """The pip.conf of this machine, and the folders and files that it names, as volumes of the build."""
        settings = {}
        for line in command(sys.executable, "-m", "pip", "config", "list").splitlines():
            key, _, value = line.partition("=")
            settings.setdefault(key.rpartition(".")[2], ast.literal_eval(value))
        file = self.folder / "pip.conf"
        file.write_text(f"# {SECRET}\n[global]\n" + "".join(f"{key} = {settings[key]}\n" for key in settings))
        # An index on the disk, file:///FOLDER/simple, refers to files of FOLDER.
        places = " ".join(settings.values()).split()
        paths = [Path(re.sub(r"^file://(.*)/[^/]+/?$", r"\1", place)) for place in places]
        return file, [f"--volume={path}:{path}:ro" for path in paths if path.is_absolute() and path.exists()]

    def close(self):
        self("rm", "--all")
        self("rmi", "--all", "--force")
        shutil.rmtree(self.folder)


class Container:
    """A container of the image: its files, and its entry point as an engine would run it."""

    def __init__(self, buildah):
        container = buildah("from", IMAGE)
        self.root = Path(buildah("mount", container))
        self.config = json.loads(buildah("inspect", "--type=image", IMAGE))["OCIv1"]["config"]

    def words(self, *words, user=None, read_only=False, workspace=None, owner=None, environment=MappingProxyType({})):
        """The command that runs `IMAGE words`: as another user, with a read-only root, with a mounted folder.

        owner       the user id that owns the mounted folder; by default that of the command
        """
        uid, gid = (user or self.config["User"]).split(":")
        mounts = ["--ro-bind" if read_only else "--bind", self.root, "/", "--proc", "/proc", "--dev", "/dev"]
        for place in ("/dev/shm", "/tmp") if read_only else ("/dev/shm",):  # an engine mounts the first by itself
            mounts += ["--perms", "1777", "--tmpfs", place]
        if workspace is not None:
            os.chown(workspace, int(uid) if owner is None else owner, int(gid))
            mounts += ["--bind", workspace, self.config["WorkingDir"]]
        variables = [
            *(line.split("=", 1) for line in self.config["Env"]),
            ("OMP_NUM_THREADS", "1"),
            *environment.items(),
        ]
        setenv = [word for pair in variables for word in ("--setenv", *pair)]
        return [
            "bwrap", *mounts, "--unshare-pid", "--as-pid-1", "--unshare-ipc", "--die-with-parent", "--cap-add", "ALL",
            "--clearenv", *setenv, "--chdir", self.config["WorkingDir"],
            "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--bounding-set=-all",
            *self.config["Entrypoint"], *words,
        ]  # fmt: skip

    def run(self, *words, **options):
        return command(*self.words(*words, **options), timeout=900)

    @contextmanager
    def started(self, *words, **options):
        """The running `IMAGE words`, and a function that sends it a signal as an engine does: to process 1."""
        reading, writing = os.pipe()
        program, *rest = map(str, self.words(*words, **options))
        with subprocess.Popen([program, "--info-fd", str(writing), *rest], pass_fds=[writing]) as process:
            os.close(writing)
            try:
                with open(reading) as info:
                    first = json.load(info)["child-pid"]
                yield process, lambda number: os.kill(first, number)
            finally:
                process.kill()


def make_context(folder):
    """A copy of the checkout, with secrets where users keep them. As with umask 077, only its owner can read it."""
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for name in TRAPS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"key: {SECRET}\n")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    return folder
