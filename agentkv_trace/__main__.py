"""`python -m agentkv_trace`."""

import sys

from agentkv_trace.cli.app import main

sys.exit(main())
