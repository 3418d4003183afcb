"""``python -m tfrecord`` is the ``tfrecord`` command."""

import sys

from tfrecord.cli import main

sys.exit(main())
