"""The parts of ``scripts/bench.py``: suites of cases, one worker process per library, rounds, tables."""
