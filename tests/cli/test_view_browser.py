"""The pages of `tfrecord view` in Chromium: by keyboard, in the background, and with hostile contents."""

from __future__ import annotations

import base64
import io
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, Page
from samples import HOSTILE, MakeFile, Run, examples, png, wave

from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.server import ViewServer
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.reader import TFRecordReader

pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.one_run, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]

Serve = Callable[..., ViewServer]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    made = browser.page()
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(path)`: a running server of a file."""
    with ExitStack() as stack:

        def start(path: Path) -> ViewServer:
            problems: list[Any] = []
            reader = TFRecordReader(str(path), record_type="bytes", on_error=problems.append)
            stack.enter_context(reader)
            server = stack.enter_context(ViewServer(ViewData(reader, problems=problems)))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield start


def photos(count: int) -> list[bytes]:
    """Examples with a picture, a label and a box."""
    return [
        encode_example(
            {
                "image/encoded": (png(40 + i % 3, 30), "bytes"),
                "image/class/text": (["cat", "dog"][i % 2], "bytes"),
                "image/object/bbox/xmin": ([0.1], "float"),
                "image/object/bbox/ymin": ([0.2], "float"),
                "image/object/bbox/xmax": ([0.5], "float"),
                "image/object/bbox/ymax": ([0.9], "float"),
                "n": (i, "int"),
            }
        )
        for i in range(count)
    ]


def test_grid_pages_and_keyboard(page: Page, serve: Serve, make_file: MakeFile) -> None:
    server = serve(make_file(photos(130)))
    page.go(server.url)
    assert page.js("document.querySelectorAll('.grid .thumb').length") == 60
    page.wait("[...document.images].slice(0, 5).every(i => i.complete && i.naturalWidth >= 40)")
    assert page.js("document.querySelector('.grid .caption').textContent") == "cat#0"
    page.press("ArrowRight")
    page.wait("document.querySelector('#shown')?.textContent === '61 to 120 of 130'")
    page.press("ArrowRight")
    page.wait("document.querySelector('#shown')?.textContent === '121 to 130 of 130'")
    page.press("ArrowLeft")
    page.wait("document.querySelector('#shown')?.textContent === '61 to 120 of 130'")
    for key in "jjkj":
        page.press(key)
    assert page.js("document.activeElement.textContent") == "dog#61"
    page.press("Enter")
    page.wait("document.querySelector('h2')?.textContent === 'Record 61 62 of 130'")
    page.press("j")
    page.wait("document.querySelector('h2')?.textContent === 'Record 62 63 of 130'")
    page.press("k")
    page.wait("document.querySelector('h2')?.textContent === 'Record 61 62 of 130'")
    page.press("Escape")
    page.wait("document.querySelector('#shown')?.textContent === '61 to 120 of 130'")


def test_overlays_stay_as_they_are_chosen(page: Page, serve: Serve, make_file: MakeFile) -> None:
    server = serve(make_file(photos(70)))
    page.go(server.url)
    visible = "getComputedStyle(document.querySelector('.boxes')).display !== 'none'"
    assert page.js(visible) and page.js(
        "document.querySelector('.boxes rect').getBoundingClientRect().width > 9"
    )
    page.press("b")
    assert not page.js(visible) and "off=boxes" in page.js("location.href")
    assert page.js("document.querySelector('[data-off=boxes]').getAttribute('aria-pressed')") == "false"
    page.press("ArrowRight")
    page.wait("document.querySelector('#shown')?.textContent === '61 to 70 of 70'")
    assert not page.js(visible)
    page.press("l")
    assert page.js("getComputedStyle(document.querySelector('.caption span')).display") == "none"
    page.press("b")
    assert page.js(visible)


def test_search_position_and_help_by_keyboard(
    page: Page, serve: Serve, run: Run, make_file: MakeFile
) -> None:
    path = make_file(examples(30))
    assert run("index", "--columns", "label", path).code == 0
    page.go(serve(path).url + "records?view=list")
    page.press("/")
    page.wait("document.activeElement.id === 'q'")
    page.call("Input.insertText", text="label=3")
    page.press("Enter")
    page.wait("document.querySelector('#shown')?.textContent === '1 to 7 of 7 found'")
    address = page.js("location.href")
    page.press("j")
    page.press("Enter")
    page.wait("document.querySelector('h2')?.textContent === 'Record 3 1 of 7 found'")
    page.go(address)
    assert page.js("document.querySelectorAll('article.record').length") == 7
    page.press("g")
    page.wait("document.activeElement.id === 'at'")
    page.call("Input.insertText", text="-1")
    page.press("Enter")
    page.wait("document.querySelector('h2')?.textContent === 'Record 29 30 of 30'")
    page.press("?")
    page.wait("document.querySelector('dialog').open")
    page.press("Escape")
    assert page.wait("!document.querySelector('dialog').open")


def test_sorting_by_an_index_column(page: Page, serve: Serve, run: Run, make_file: MakeFile) -> None:
    path = make_file(photos(30))
    assert run("index", "--columns", "n", path).code == 0
    page.go(serve(path).url)
    page.js("document.querySelector('select').value = '-n'")
    page.js("document.querySelector('select').dispatchEvent(new Event('change'))")
    page.wait("document.querySelector('.caption .soft')?.textContent === '#29'")


def test_a_search_in_the_background(page: Page, serve: Serve, make_file: MakeFile) -> None:
    server = serve(make_file([encode_example({"n": (i, "int")}) for i in range(40_000)]))
    slow = threading.Event()
    chunks = server.data.chunks

    def slowly(positions: Any) -> Iterator[Any]:
        for number, piece in enumerate(chunks(positions)):
            if number == 2:
                slow.wait(60)
            yield piece

    server.data.chunks = slowly  # type: ignore[method-assign]
    page.go(server.url + "records?view=list&q=n%3C5%20and%20n%3E%3D0")
    page.wait("document.querySelectorAll('article.record').length === 5")  # while it runs
    assert "Searching: 8,192 of 40,000" in page.js("document.querySelector('#status').textContent")
    page.js("document.querySelector('#status .button').click()")
    page.wait("document.querySelector('#status').textContent.startsWith('Stopped')")
    assert "stop=1" in page.js("location.href")
    slow.set()
    page.js("document.querySelector('#status .button').click()")
    page.wait("document.querySelector('#status').textContent === ''")
    assert page.wait("document.querySelector('#said').textContent") == "Done: 1 to 5 of 5 found"
    assert page.js("document.querySelectorAll('article.record').length") == 5


def test_the_overview_counts_everything_in_the_background(
    page: Page, serve: Serve, make_file: MakeFile
) -> None:
    path = make_file([encode_example({"n": (i % 10, "int")}) for i in range(9000)])
    data = bytearray(path.read_bytes())
    data[25] ^= 1
    path.write_bytes(bytes(data))
    page.go(serve(path).url + "overview")
    assert page.js("document.querySelector('h2').textContent").endswith("of 9,000 records")
    page.js("[...document.querySelectorAll('a')].find(a => a.textContent.startsWith('Count all')).click()")
    page.wait("document.querySelector('h2')?.textContent === 'Features of 9,000 records'")
    assert page.js("document.querySelectorAll('svg.bars g').length") == 10
    page.js("[...document.querySelectorAll('a')].find(a => a.textContent.startsWith('Check')).click()")
    page.wait("document.body.textContent.includes('1 damaged place in 1 file')")
    assert page.wait("document.body.textContent.includes('bad_payload_crc')")


def hostile() -> list[bytes]:
    """Contents that try to run, in every place that shows data."""
    text = HOSTILE.encode()
    made = [
        encode_example(
            {
                HOSTILE: (text, "bytes"),
                "image/encoded": (png(40, 30), "bytes"),
                "image/class/text": (text, "bytes"),
                "image/object/class/text": ([text], "bytes"),
                **{
                    f"image/object/bbox/{side}": ([0.5], "float") for side in ("xmin", "ymin", "xmax", "ymax")
                },
                "image/object/mask": ([b"\x89PNG\r\n\x1a\n" + bytes(100)], "bytes"),
                "svg": (b"<svg xmlns='http://www.w3.org/2000/svg' onload='document.title=1'/>", "bytes"),
                "html": (b"<iframe src=http://example.invalid/></iframe>", "bytes"),
                "css": (b"</style><style>*{background:url(http://example.invalid/)}</style>", "bytes"),
                "broken": (b"\xff\xd8\xff\xe0" + bytes(50), "bytes"),
                "sound": (wave()[:60], "bytes"),
                "nan": ([float("nan"), float("inf")] * 20, "float"),
                "huge": (b"<b>" * 300_000, "bytes"),
            }
        )
    ]
    return made * 3 + [b"\xff" + text]


def test_hostile_contents_run_nothing_and_ask_nobody(page: Page, serve: Serve, make_file: MakeFile) -> None:
    path = make_file(hostile(), "a<script>document.title='owned'<script>.tfrecord")
    server = serve(path)
    places = ("", "records?view=list", "record?at=0", "record?at=3", "overview?all=1&check=1", "bytes?file=0")
    search = "records?q=%3Cscript%3Ealert(1)%3C/script%3E&sort=%3Cb%3E&view=%22%3E&off=%22"
    wrong = "record?at=%3Cscript%3Edocument.title=1%3C/script%3E"
    for place in (*places, search, wrong):
        page.go(server.url + place)
        title = page.js("document.title")
        assert title != "1" and not title.startswith("owned"), place
        assert (
            page.js("document.scripts.length + document.querySelectorAll('iframe, object, style').length")
            == 2
        )
        assert page.js(
            "[...document.querySelectorAll('*')].every(e => e.getAttributeNames().every(a => !/^on/.test(a)))"
        )
    asked = {event["request"]["url"] for event in page.told("Network.requestWillBeSent")}
    assert all(url.startswith((server.url, "data:")) for url in asked), asked
    assert any("thumb?" in url for url in asked) and len(asked) > 8


def test_sequences_show_steps(page: Page, serve: Serve, make_file: MakeFile) -> None:
    steps = {"frames": ([[png(8, 8)]] * 50, "bytes"), "reward": ([[float(i)] for i in range(50)], "float")}
    page.go(serve(make_file([encode_sequence_example({"id": (1, "int")}, steps)])).url)
    assert page.js("document.querySelectorAll('.strip thead th').length") == 30
    assert page.js("document.querySelectorAll('.strip img').length") == 30
    page.js("document.querySelector('h2 a').click()")
    page.wait("document.querySelectorAll('.strip thead th').length === 50")
    page.wait("document.querySelector('.strip img').naturalWidth === 8")


def test_sounds_that_only_the_browser_decodes_are_drawn(
    page: Page, serve: Serve, make_file: MakeFile
) -> None:
    form = struct.pack("<HHIIHH", 7, 1, 8000, 8000, 1, 8)  # mu-law
    data = bytes(range(256)) * 8
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
    sound = b"RIFF" + struct.pack("<I", len(body)) + body
    records = [
        encode_example({"a": (sound, "bytes"), "b": (wave(), "bytes"), "c": (b"fLaC" + bytes(9), "bytes")})
    ]
    page.go(serve(make_file(records)).url)
    page.wait("document.querySelectorAll('svg.wave').length === 2")
    assert len(page.js("document.querySelector('svg.wave path').getAttribute('d')")) > 2000
    assert page.js("document.querySelectorAll('audio').length") == 3


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark"), (320, "light")]
)
def test_screens(page: Page, serve: Serve, make_file: MakeFile, width: int, scheme: str) -> None:
    image = pytest.importorskip("PIL.Image")
    server = serve(make_file(photos(10)))
    page.form(width, 800, scheme)
    for place in ("", "records?view=list", "record?at=1", "overview"):
        page.go(server.url + place)
        assert page.js("document.documentElement.scrollWidth") <= width, place
        shot = image.open(io.BytesIO(base64.b64decode(page.screenshot()))).convert("L")
        corner = shot.getpixel((2, shot.height - 3))
        assert corner < 60 if scheme == "dark" else corner > 200
        assert len(set(shot.tobytes())) > 20
        assert page.js(CONTRAST) == [], place
        assert page.js(UNLABELLED) == [], place


# Texts with less contrast than WCAG's AA, as "text: ratio".
CONTRAST = """(() => {
  const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const rgba = text => text.match(/[\\d.]+/g).map(Number);
  const back = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || e.closest("svg, [aria-disabled], script, option, dialog")) continue;
    const [a, b] = [light(rgba(getComputedStyle(e).color).slice(0, 3)), light(back(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(e.textContent.slice(0, 30) + ": " + ratio.toFixed(2));
  }
  return found;
})()"""
# Controls and pictures without a name.
UNLABELLED = """(() => {
  const all = document.querySelectorAll("a, button, input:not([type=hidden]), select, img, audio, progress");
  const name = e => e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length;
  return [...all].filter(e => !name(e) && !e.hasAttribute("alt")).map(e => e.outerHTML);
})()"""
