"""unittest.main() for ctest's SKIP_RETURN_CODE. Standard library only."""
import sys
import unittest

SKIPPED = 77


def skipping_main(module, *arguments):
    """Runs the tests of a module; ends with 77 where each of them was skipped."""
    result = unittest.main(module=module, argv=[sys.argv[0], *arguments], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    # A class that is skipped as a whole counts as one, and runs none.
    sys.exit(SKIPPED if result.skipped and len(result.skipped) >= result.testsRun else 0)
