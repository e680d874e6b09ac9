// What the page shows and asks for. All that is computed is computed by the program in the worker,
// which answers each request with messages of one name and a value.
"use strict";

const at = (id) => document.getElementById(id);
const worker = new Worker("worker.js");
const ask = (what, more) => worker.postMessage({ what, ...more });
const make = (name, text, kind) => {
  const e = document.createElement(name);
  e.textContent = text ?? "";
  if (kind) e.className = kind;
  return e;
};

// Training: the page asks for an epoch after the other until the visitor stops it.

let training = false;
const losses = [], shares = []; // [step, value]

at("train").onclick = () => {
  training = !training;
  at("train").textContent = training ? "Stop" : "Train on";
  if (training) ask("epoch");
};

let waiting = false; // for the next frame to be drawn
function chart() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const last = Math.max(1, losses.length), most = Math.max(...losses.map((p) => p[1]), 0.01);
    const line = (points, top) => points.map(([step, v], i) =>
      `${i ? "L" : "M"}${(640 * step / last).toFixed(1)} ${(210 - 200 * v / top).toFixed(1)}`).join("");
    document.querySelector("path.loss").setAttribute("d", line(losses, most));
    document.querySelector("path.accuracy").setAttribute("d", line(shares, 1));
    at("most").textContent = `loss ${most.toFixed(1)}`;
  });
}

// Drawing.

const pen = at("draw").getContext("2d", { willReadFrequently: true });
Object.assign(pen, { lineWidth: 20, lineCap: "round", lineJoin: "round" });
let inked = false, asked = false;

function classify() {
  if (!inked || asked) return;
  asked = true;
  const drawn = pen.getImageData(0, 0, 256, 256).data;
  ask("classify", { ink: Uint8Array.from({ length: 256 * 256 }, (_, i) => drawn[4 * i + 3]) });
}

at("draw").onpointerdown = (e) => {
  pen.beginPath();
  pen.moveTo(e.offsetX, e.offsetY);
  at("draw").onpointermove(e);
};
at("draw").onpointermove = (e) => {
  if (!e.buttons) return;
  pen.lineTo(e.offsetX, e.offsetY);
  pen.stroke();
  inked = true;
};
at("draw").onpointerup = classify;
at("draw").onpointerleave = (e) => e.buttons && classify();
at("clear").onclick = () => {
  pen.clearRect(0, 0, 256, 256);
  inked = false;
  odds();
};

function odds(seen) {
  const small = at("seen").getContext("2d"), picture = small.createImageData(8, 8);
  seen?.pixels.forEach((v, i) => { picture.data[4 * i + 3] = 255 * v; });
  small.putImageData(picture, 0, 0);
  const best = seen ? Math.max(...seen.odds) : 0;
  at("odds").replaceChildren(...(seen?.odds ?? []).map((p, digit) => {
    const row = make("div", digit, p === best ? "best" : ""), bar = make("i");
    bar.style.width = `${(80 * p).toFixed(1)}%`;
    row.append(bar, make("span", `${(100 * p).toFixed(1)} %`));
    return row;
  }));
}

// Files.

at("pick").onchange = () => {
  at("error").textContent = "";
  at("tensors").replaceChildren();
  at("values").hidden = true;
  if (at("pick").files.length) ask("open", { file: at("pick").files[0] });
};

const answers = {
  ready(digits) {
    at("train").disabled = false;
    at("status").textContent = `${digits.known} digits to learn from, ${digits.held} to be measured on`;
  },
  step(s) {
    losses.push([s.number, s.loss]);
    chart();
  },
  epoch(e) {
    shares.push([e.steps, e.accuracy]);
    at("status").textContent = `${e.steps} steps, loss ${losses.at(-1)[1].toFixed(3)}, ${(100 * e.accuracy).toFixed(1)} % of those held out are right`;
    chart();
    classify();
    if (training) ask("epoch");
  },
  seen(seen) {
    asked = false;
    odds(inked ? seen : null);
  },
  file(file) {
    at("tensors").replaceChildren(...file.rows.map((t) => {
      const row = make("tr");
      row.append(make("td", t.name), make("td", t.type), make("td", t.shape), make("td", t.bytes.toLocaleString("en"), "number"));
      row.onclick = () => ask("show", { name: t.name });
      return row;
    }));
    at("notes").replaceChildren(...Object.entries(file.notes).map(([k, v]) => make("p", `${k}: ${v}`)));
    document.querySelector("table").hidden = false;
  },
  values(t) {
    at("values").textContent = `${t.name}\n${t.text}`;
    at("values").hidden = false;
  },
  error(text) {
    asked = false;
    at("error").textContent = text;
  },
};
worker.onmessage = (e) => {
  for (const [name, value] of Object.entries(e.data)) answers[name](value);
};
worker.onerror = (e) => answers.error(e.message);
