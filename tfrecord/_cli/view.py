"""`tfrecord view`."""

from __future__ import annotations

import webbrowser

import click

from indexer.compression import Compression
from indexer.outputs import STREAM
from tfrecord._cli.common import compression_option, count_text, emit, expand, json_option, paths_argument
from tfrecord._cli.prepared import about, describe
from tfrecord._cli.problems import record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import say
from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.server import ViewServer
from tfrecord.reader import TFRecordReader


@click.command()
@paths_argument
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port (default: any free port).")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@compression_option
@record_type_option
@remote_options
@json_option
def view(
    paths: tuple[str, ...],
    port: int,
    no_browser: bool,
    compression: Compression | None,
    record_type: str,
    as_json: bool,
) -> None:
    """View records in the browser: pages by position, search on index columns, images, sounds, histograms.

    The page is served to this machine only (127.0.0.1), at a secret URL. Ctrl-C stops it. To search, store
    columns in the index: tfrecord index FILES --columns label

    \b
    Example:
      tfrecord view data.tfrecord --no-browser
    """
    files = expand(paths)
    if STREAM in files:
        raise click.UsageError("standard input has no positions")
    with TFRecordReader(files, record_type="bytes", compression_type=compression) as reader:
        data = ViewData(reader, [line for found in describe(paths) for line in about(found)], record_type)
        with ViewServer(data, port) as server:
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
