"use strict";
// The pages work without this script. It adds the keyboard, switches overlays in place, and follows work in the
// background. It makes no HTML from text: new content comes as parsed documents of our own server.
const one = (query, within) => (within || document).querySelector(query);
const all = (query, within) => [...(within || document).querySelectorAll(query)];

// ---- overlays

function toggle(button) {
  const off = !document.body.classList.toggle("off-" + button.dataset.off) ? "false" : "true";
  button.setAttribute("aria-pressed", off === "true" ? "false" : "true");
  const names = all("[data-off]").filter(b => b.getAttribute("aria-pressed") === "false").map(b => b.dataset.off);
  const given = url => {
    if (names.length) url.searchParams.set("off", names.join(",")); else url.searchParams.delete("off");
    return url;
  };
  history.replaceState(null, "", given(new URL(location)));
  for (const a of all("a[href]")) if (/\/records?$/.test(a.pathname) && !a.dataset.off) a.href = given(new URL(a.href));
  for (const form of all('form[action="records"]')) {
    let field = one("[name=off]", form);
    if (!field) { field = document.createElement("input"); field.type = "hidden"; field.name = "off"; form.append(field); }
    field.value = names.join(",");
  }
}
for (const button of all("[data-off]")) {
  button.addEventListener("click", event => { event.preventDefault(); toggle(button); });
  button.addEventListener("keydown", event => { if (event.key === " ") { event.preventDefault(); toggle(button); } });
}
for (const select of all("main select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
  all(".plain", select.form).forEach(button => { button.hidden = true; });
}

// ---- keyboard

function move(by) {
  const items = all(".item"), at = items.indexOf(document.activeElement.closest(".item"));
  if (!items.length) return one(`main a[rel=${by > 0 ? "next" : "prev"}][href]`)?.click();
  const to = items[Math.max(0, Math.min(items.length - 1, at < 0 ? (by > 0 ? 0 : items.length - 1) : at + by))];
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}
const follow = query => one(query)?.click();
const keys = {
  j: () => move(1), k: () => move(-1),
  ArrowRight: () => follow("main a[rel=next][href]"), ArrowLeft: () => follow("main a[rel=prev][href]"),
  "/": () => one("#q").select() || one("#q").focus(), g: () => one("#at").focus(), "?": () => one("dialog").showModal(),
  b: () => follow("[data-off=boxes]"), m: () => follow("[data-off=masks]"), l: () => follow("[data-off=labels]"),
  Escape: () => follow("#back"),
  Enter: () => { if (document.activeElement.matches("article.item")) one("h2 a", document.activeElement).click(); },
};
addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || one("dialog").open) return;
  if (event.target.closest("input, select, textarea, audio, .strip, .hex")) return;
  const act = Object.hasOwn(keys, event.key) && keys[event.key];
  if (!act || (event.key === "Enter" && event.target.closest("a, button"))) return;
  if (event.key !== "Enter") event.preventDefault();
  act();
});
one("#help").addEventListener("click", () => one("dialog").showModal());

// ---- waveforms of sounds that the browser decodes

async function draw(sound) {
  const data = await (await fetch(sound.src)).arrayBuffer();
  const samples = (await new OfflineAudioContext(1, 1, 44100).decodeAudioData(data)).getChannelData(0);
  const step = Math.ceil(samples.length / 240) || 1;
  let path = "";
  for (let at = 0, x = 0; at < samples.length; at += step, x += 100 / 240) {
    let top = 0;
    for (let i = at; i < Math.min(at + step, samples.length); i++) top = Math.max(top, Math.abs(samples[i]));
    top = Math.min(top, 1);
    path += `M${x.toFixed(2)} ${(15 - 14 * top).toFixed(2)}V${(15.3 + 14 * top).toFixed(2)}`;
  }
  const make = name => document.createElementNS("http://www.w3.org/2000/svg", name);
  const drawing = make("svg"), line = make("path");
  const attributes = { class: "wave", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img",
    "aria-label": "Waveform, " + sound.getAttribute("aria-label") };
  for (const name in attributes) drawing.setAttribute(name, attributes[name]);
  line.setAttribute("d", path);
  drawing.append(line);
  sound.before(drawing);
}
(async () => {
  for (const sound of all("audio[data-draw]")) try { await draw(sound); } catch { /* not decoded: it has no picture */ }
})();

// ---- work in the background

function fetched(address, use) {
  const request = new XMLHttpRequest();
  request.responseType = "document";  // parsed, and nothing in it runs
  request.open("GET", address);
  request.onload = () => { if (request.status === 200 && request.response) use(request.response); };
  request.onerror = () => { one("#said").textContent = "The viewer was stopped."; };
  request.send();
}
function put(name, from) {
  const now = one("#" + name), next = one("#" + name, from);
  if (!now || !next || now.isEqualNode(next)) return;
  const focused = now.contains(document.activeElement) && document.activeElement.getAttribute("href");
  now.replaceWith(document.adoptNode(next));
  if (focused) all(`#${name} [href]`).find(a => a.getAttribute("href") === focused)?.focus();
}
let polling = 0;
function show(from) {
  const isOpen = one("#live")?.hasAttribute("data-open");
  for (const nav of all(".pager, #shown", from)) {
    const at = all(".pager, #shown", from).indexOf(nav), now = all(".pager, #shown")[at];
    if (now && !now.isEqualNode(nav) && !now.contains(document.activeElement)) now.replaceWith(document.importNode(nav, true));
  }
  put("status", from);
  if (isOpen) put("live", from);
  watch();
}
function watch() {
  clearTimeout(polling);
  if (one("#status")?.hasAttribute("data-running")) {
    polling = setTimeout(() => fetched(location.href, show), 400);
  } else if (polling) {
    one("#said").textContent = "Done: " + (one("#shown")?.textContent || "");
    polling = 0;
  }
}
// Stop and Continue change the address without leaving the page.
document.addEventListener("click", event => {
  const link = event.target.closest(".status a.button");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  fetched(link.href, show);
});
watch();
document.body.dataset.ready = "yes";
