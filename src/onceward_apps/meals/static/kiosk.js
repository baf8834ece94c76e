// The counter.  A code in view is one scan, however long it is held there; each scan has an id, so that asking again
// after a lost answer is told the same.
const root = document.querySelector(".kiosk");
const parts = Object.fromEntries([...root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
const words = JSON.parse(root.dataset.words);
const KEPT = "meals-kiosk-key";
const SHOWN = { good: 2500, bad: 5000, wait: 4000 };
// A code that was out of sight for so long is a new scan.
const GONE = 3000;
let key = localStorage.getItem(KEPT);
let sound;
let busy = false;
let last = { text: "", seen: 0 };
let ending;

// A link that sets up the counter has the key behind the #, which no server sees; it does not stay in the address.
if (location.hash.length > 1) {
  key = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
}

function show(name) {
  for (const part of ["key", "start", "scan"]) parts[part].hidden = part !== name;
  if (name === "key") document.getElementById("key").focus();
  if (name === "scan") document.getElementById("code").focus();
}

function lock() {
  localStorage.removeItem(KEPT);
  key = null;
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  show("key");
}

// A scan of nothing: refused for its key, or for its contents.
// A key that is right is kept.  Whether it is right; undefined when nobody could say.
async function check() {
  try {
    // What no header can carry is no key.
    const answer = /^[ -~]+$/.test(key) ? await post("/api/qr/redeem", "{}") : { status: 401 };
    if (answer.status >= 500) return undefined;
    if (answer.status !== 401) {
      localStorage.setItem(KEPT, key);
      return true;
    }
  } catch {
    return undefined;
  }
  lock();
  say("bad", "UNAUTHORIZED");
  return false;
}

// ------------------------------------------------------------ the answer

function play(kind) {
  if (!sound) return;
  const notes = { good: [880, 1320], bad: [233, 185], wait: [440, 440] }[kind];
  notes.forEach((pitch, i) => {
    const tone = sound.createOscillator();
    const volume = sound.createGain();
    const at = sound.currentTime + i * 0.16;
    tone.type = kind === "good" ? "sine" : "square";
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.25, at);
    volume.gain.exponentialRampToValueAtTime(0.001, at + 0.15);
    tone.connect(volume).connect(sound.destination);
    tone.start(at);
    tone.stop(at + 0.16);
  });
}

function say(kind, code, found = {}) {
  const [word, line] = words[code] ?? words.DATABASE_ERROR;
  const facts = { name: "", error: "", service_date: "another day", ...found };
  const answer = parts.answer;
  answer.className = `answer answer-${kind}`;
  answer.querySelector("[data-says=word]").textContent = word;
  answer.querySelector("[data-says=line]").textContent = line.replace(/\{(\w+)\}/g, (_, name) => facts[name] ?? "");
  answer.hidden = false;
  play(kind);
  clearTimeout(ending);
  ending = setTimeout(() => (answer.hidden = true), SHOWN[kind]);
}

// The answer is gone at a touch, for the next in the queue.
parts.answer.addEventListener("click", () => (parts.answer.hidden = true));

async function post(path, body) {
  return fetch(path, { method: "POST", body, headers: { authorization: `Bearer ${key}` }, cache: "no-store" });
}

async function redeem(text) {
  if (busy || !text) return;
  busy = true;
  const body = JSON.stringify({ token: text, scan_id: crypto.randomUUID() });
  try {
    for (let again = 0; ; again++) {
      try {
        const answer = await post("/api/qr/redeem", body);
        const found = await answer.json();
        if (answer.status >= 500 && again < 3) throw new Error("server");
        if (answer.ok) say("good", "OK", found);
        else if (answer.status >= 500) say("wait", "DATABASE_ERROR");
        else say("bad", found.code, found);
        if (answer.status === 401) lock();
        return;
      } catch (error) {
        if (again === 3) return say("wait", "DATABASE_ERROR");
        await new Promise((next) => setTimeout(next, 300 * (again + 1)));
      }
    }
  } finally {
    busy = false;
  }
}

function seen(text) {
  const now = performance.now();
  const isNew = text !== last.text || now - last.seen > GONE;
  last = { text, seen: now };
  if (isNew) redeem(text);
}

// ------------------------------------------------------------ the camera

const video = root.querySelector("video");
const canvas = document.createElement("canvas");

async function reader() {
  if ("BarcodeDetector" in window && (await BarcodeDetector.getSupportedFormats()).includes("qr_code")) {
    const detector = new BarcodeDetector({ formats: ["qr_code"] });
    root.dataset.reads = "here";
    return async () => (await detector.detect(video))[0]?.rawValue;
  }
  // This browser does not read codes: the server does, from small pictures.
  root.dataset.reads = "server";
  return async () => readPicture(video, video.videoWidth, video.videoHeight, 800);
}

async function readPicture(source, width, height, most) {
  const scale = Math.min(1, most / Math.max(width, height));
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d").drawImage(source, 0, 0, canvas.width, canvas.height);
  const picture = await new Promise((made) => canvas.toBlob(made, "image/jpeg", 0.75));
  const answer = await post("/api/qr/read", picture);
  if (answer.status >= 500) throw new Error("server");
  if (answer.status === 401) {
    lock();
    say("bad", "UNAUTHORIZED");
  }
  return answer.ok ? (await answer.json()).token : undefined;
}

async function scan() {
  const read = await reader();
  while (video.srcObject) {
    try {
      if (!busy && video.readyState >= 2 && !document.hidden) {
        const text = await read();
        if (text) seen(text);
      }
    } catch {
      // No connection, or a frame that could not be read: the next one may.
    }
    await new Promise((next) => setTimeout(next, root.dataset.reads === "here" ? 120 : 350));
  }
}

async function start() {
  // Sound is allowed after a touch only, and this is one.
  sound = new AudioContext();
  show("scan");
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 1280 } },
    });
    await video.play();
    scan();
  } catch {
    root.querySelector("[data-says=aim]").textContent = "No camera: use a hand scanner, a photo, or type the code";
  }
}

// ------------------------------------------------------------ what people do

root.addEventListener("click", (event) => {
  const target = event.target.closest("[data-do]");
  if (target?.dataset.do === "start") start();
  else if (target?.dataset.do === "lock") lock();
});

root.addEventListener("submit", async (event) => {
  if (!event.target.dataset.form) return;
  event.preventDefault();
  const field = event.target.querySelector("input");
  const given = field.value.trim();
  field.value = "";
  if (event.target.dataset.form === "code") return redeem(given);
  key = given;
  const right = await check();
  if (right) return show("start");
  if (right === undefined) {
    // It may be the right one: it is asked for again, and need not be typed again.
    field.value = given;
    say("wait", "UNCHECKED");
  }
});

root.querySelector("[data-do=photo]").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    return say("bad", "NO_PICTURE");
  }
  try {
    const text = await readPicture(picture, picture.width, picture.height, 1280);
    if (text) redeem(text);
    else if (key) say("wait", "NO_CODE");
  } catch {
    say("wait", "DATABASE_ERROR");
  }
});

show(key ? "start" : "key");
// The one of a link, or one that was kept and is not known any more.
if (key) check().then((right) => right === undefined && localStorage.setItem(KEPT, key));
