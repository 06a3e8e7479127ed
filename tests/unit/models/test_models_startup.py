"""Importing the room stays light and has no side effects: the command line starts with it."""

import subprocess
import sys


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import models.accelerator, models.catalogue, models.link, models.llm, models.roofline, models.storage\n"
        "heavy = {'pandas', 'scipy', 'matplotlib', 'rich', 'numpy', 'simpy', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
