# Sourced by the scripts beside it: makes (or reuses) a virtual environment and installs the checkout into it.
# Usage: make_venv FOLDER REQUIREMENT...   Sets $py to the environment's Python.

make_venv() {
    local folder=$1
    shift
    local base=${PYTHON:-python3}
    "$base" - <<'CHECK' || { echo "Python >= 3.10 is needed; set PYTHON to one" >&2; return 1; }
import sys
sys.exit(sys.version_info < (3, 10))
CHECK
    [ -x "$folder/bin/python" ] || "$base" -m venv "$folder" || {
        echo "no virtual environment could be made (on Debian: apt-get install python3-venv)" >&2
        return 1
    }
    py=$folder/bin/python
    # pip 25.1 brought --group.
    "$py" -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' ||
        "$py" -m pip install --quiet --upgrade pip
    "$py" -m pip install --quiet --upgrade "setuptools>=77" "Cython>=3.1"
    # Without build isolation a second run reuses the objects of the first.
    PYTHONWARNINGS=ignore "$py" -m pip install --quiet --no-build-isolation "$@"
}

# Says which engine the checkout got, and picks the reference engine knowingly where no kernel could be built.
choose_engine() {
    if [ -z "${TFRECORD_ENGINE:-}" ] && ! "$py" -W ignore -c 'import sys, tfrecord; sys.exit(tfrecord.engine != "native")'; then
        echo "The compiled kernels are not there (no C compiler?): going on with the reference engine, slower but equal."
        export TFRECORD_ENGINE=reference
    fi
}
