"""`tfrecord view`."""

from __future__ import annotations

import webbrowser

import click

from indexer.compression import Compression
from indexer.errors import TFRecordError
from indexer.outputs import STREAM
from tfrecord._cli.common import compression_option, count_text, emit, expand, json_option, paths_argument
from tfrecord._cli.prepared import about, describe, title_of
from tfrecord._cli.problems import record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import say
from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.hints import hints_of
from tfrecord._cli.viewer.server import ViewServer
from tfrecord._cli.viewer.vocab import read_vocabulary
from tfrecord.reader import TFRecordReader

_MOST_PROBLEMS = 1000


@click.command()
@paths_argument
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port (default: any free port).")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--vocab",
    multiple=True,
    metavar="[FEATURE=]FILE",
    help="Show token ids as text: a file with one token a line, or tokenizer.json (repeat it for more).",
)
@compression_option
@record_type_option
@remote_options
@json_option
def view(
    paths: tuple[str, ...],
    port: int,
    no_browser: bool,
    vocab: tuple[str, ...],
    compression: Compression | None,
    record_type: str,
    as_json: bool,
) -> None:
    """Look at records in the browser: a grid of images with boxes and masks, lists, search, an overview.

    The page is served to this machine only (127.0.0.1), at a secret URL. Ctrl-C stops it. Searches are
    immediate on columns of the index (tfrecord index FILES --columns label); others read the records.

    \b
    Examples:
      tfrecord view data.tfrecord
      tfrecord view tokens.tfrecord --vocab tokenizer.json --no-browser
    """
    files = expand(paths)
    if STREAM in files:
        raise click.UsageError("standard input has no positions")
    try:
        vocabularies = [read_vocabulary(given) for given in vocab]
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    problems: list[TFRecordError] = []

    def note(error: TFRecordError) -> None:
        if len(problems) < _MOST_PROBLEMS:
            problems.append(error)

    reader = TFRecordReader(files, record_type="bytes", compression_type=compression, on_error=note)
    with reader:
        folders = describe(paths)
        lines = [line for found in folders for line in about(found)]
        title = title_of(folders[0]) if folders and len(paths) == 1 else ""
        data = ViewData(reader, lines, record_type, problems, title)
        with ViewServer(data, port, hints_of(paths), vocabularies) as server:
            if as_json:
                emit({"url": server.url, "records": data.count})
            else:
                say(server.url)
                for line in data.about:
                    say(line, err=True)
                say(f"{count_text(data.count, 'record')}; Ctrl-C stops the server", err=True)
            if not no_browser:
                webbrowser.open(server.url)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                say("ended", err=True)
