"""What Numba's disk cache does not see: the files whose functions a kernel compiles in.

Numba drops a cached kernel when the kernel's own file changes, and only then. A kernel that calls
into other files is therefore made inside a function that is given a digest of them all: the
values that such a closure reads are part of the cache's key. What it calls in its own file must
not be cached on its own account (`register_jitable`). Imports the standard library alone. Tests:
`tests/replay/test_episodic_cache.py`.
"""

import hashlib
from pathlib import Path
from types import ModuleType


def digest_of(*sources: str | ModuleType) -> str:
    """Changes with the text of any of these files or modules."""
    return hashlib.sha256(b"\0".join(map(_text, sources))).hexdigest()


def _text(source: str | ModuleType) -> bytes:
    return Path(source if isinstance(source, str) else str(source.__file__)).read_bytes()
