// The page of a campaign. An answer has an id and is sent until the server confirms it; it is kept in this tab
// meanwhile, so that neither a lost line nor a program that is started again loses or doubles it.
"use strict";

const who = new URLSearchParams(location.search).get("who");
const part = (id) => document.getElementById(id);
const KEPT = "coremargin " + location.pathname + " " + who;
const AGAIN_MS = 1000;
const SEEN_MS = 400; // who presses a key sooner after the row was exchanged meant the row before

let view = null; // what the server has said last
let sending = null; // the answer on its way
let undoNext = false; // it is to be taken back when it was taken
let confirming = null; // what the person is asked to confirm: {text, yes}
let shownRow = null;
let lost = false; // the row that was shown last went without an answer from here
let exchanged = -SEEN_MS; // when another row came in its place
let wordRow = null; // which row was shown when the person began to type a label
let away = false; // the program does not answer

function made(name, text, attributes) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  return element;
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// what is shown

function showFacts() {
  const list = part("facts");
  list.replaceChildren();
  for (const [name, value, more] of view.facts) {
    const pair = made("div");
    const said = made("dd", value);
    if (more) said.append(made("small", more));
    pair.append(made("dt", name), said);
    list.append(pair);
  }
  const progress = part("progress");
  progress.max = Math.max(1, view.done + view.left);
  progress.value = view.done;
}

function tableOf(question) {
  const box = made("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": "Features of the row" });
  const table = made("table");
  const head = made("thead");
  const names = made("tr");
  names.append(made("th", "Feature", { scope: "col", class: "words" }), made("th", "Value", { scope: "col" }));
  head.append(names);
  const body = made("tbody");
  for (const [name, value] of question.features) {
    const line = made("tr");
    line.append(made("th", name, { scope: "row", class: "words" }), made("td", value));
    body.append(line);
  }
  table.append(head, body);
  box.append(table);
  const left = [];
  if (question.more) left.push(question.more.toLocaleString("en") + " more that are not zero");
  if (question.zeros) left.push(question.zeros.toLocaleString("en") + " that are zero");
  return left.length ? [box, made("p", "Not shown: " + left.join(", ") + ".", { class: "left-out" })] : [box];
}

function contentOf(question) {
  const parts = question.missing.map((text) => made("p", text, { class: "notice" }));
  if (question.image) {
    const kind = question.pixels ? "features drawn as an image, the largest white" : "image";
    const image = made("img", undefined, { src: question.image, alt: "Row " + question.row + ": its " + kind });
    if (question.pixels) image.className = "pixels";
    image.addEventListener("error", () => image.replaceWith(made("p", "This image cannot be shown.", { class: "notice" })));
    parts.push(image);
  }
  if (question.text !== undefined) {
    parts.push(made("blockquote", question.text, { dir: "auto", tabindex: "0" }));
    if (question.cut) parts.push(made("p", "The text goes on; only its beginning is shown.", { class: "left-out" }));
  }
  return question.features ? parts.concat(tableOf(question)) : parts;
}

function heading() {
  if (view.question) return "Row " + view.question.row.toLocaleString("en");
  if (view.ended) return "Nothing is left to ask";
  return view.ready ? "The next question is being looked for" : "Opening the campaign";
}

function reason() {
  if (view.question) return view.question.reason;
  if (view.ended) return view.ended;
  if (view.others && !view.busy) return "Another annotator has these rows first: " + view.others + ".";
  return "You may wait, or come back later: nothing is lost.";
}

function showQuestion() {
  const question = view.question;
  const row = question ? question.row : null;
  part("heading").textContent = heading();
  part("reason").textContent = reason();
  part("kind").hidden = !question;
  part("kind").textContent = question ? question.why : "";
  document.body.classList.toggle("ended", Boolean(view.ended));
  if (row === shownRow && row !== null) return;
  shownRow = row;
  part("content").replaceChildren(...(question ? contentOf(question) : []));
  part("question").scrollTop = 0;
  if (view.next_image) new Image().src = view.next_image;
  if (!question) return;
  const said = question.text ? question.text.slice(0, 500) : question.image ? "An image." : "";
  announce("Row " + row + ". " + question.reason + " " + said);
}

function announce(text) {
  part("live").textContent = text;
}

function showLabels() {
  const group = part("labels");
  const known = view.classes || [];
  const typed = known.length < 2 || known.length > 9;
  const labels = known.length > 9 ? [] : known;
  const now = Array.from(group.querySelectorAll("button"), (button) => button.dataset.label);
  if (labels.join("\u0000") !== now.join("\u0000") || labels.length !== now.length) {
    group.replaceChildren(
      ...labels.map((label, place) => {
        const button = made("button", undefined, { type: "button", class: "label" });
        button.dataset.label = label;
        button.append(made("kbd", String(place + 1)), made("bdi", label));
        button.addEventListener("click", () => answer("label", label));
        return button;
      }),
    );
    part("known").replaceChildren(...known.map((label) => made("option", undefined, { value: label })));
  }
  part("typed").hidden = !typed;
  part("word-label").textContent = known.length > 9 ? "One of " + known.length + " labels" : known.length ? "The other label" : "A label";
}

// Buttons stay focusable while an answer is on its way: who has pressed one with the keyboard stays on it.
function showButtons() {
  const none = !view || !view.question || confirming !== null;
  const off = (button, value) => button.setAttribute("aria-disabled", String(Boolean(value)));
  for (const button of document.querySelectorAll("#labels button, #skip, #unsure, #typed button")) off(button, none);
  off(part("undo"), !view || !view.last || confirming !== null);
  part("undo").title = view && view.last ? "Row " + view.last.row + ": " + view.last.label : "";
}

function showNotices() {
  const parts = [];
  if (away) {
    const kept = sending ? " Your last answer is kept in this tab, and sent when it is back." : "";
    parts.push(made("p", "The program behind this page does not answer. Start coremargin active page again." + kept, { class: "notice" }));
  }
  if (view && view.trouble) parts.push(made("p", view.trouble, { class: "notice" }));
  if (confirming) {
    const box = made("div", undefined, { class: "notice ask" });
    const yes = made("button", undefined, { type: "button", class: "go" });
    const no = made("button", undefined, { type: "button" });
    yes.append(made("kbd", "y"), "Yes");
    no.append(made("kbd", "n"), "No");
    yes.addEventListener("click", () => confirmed(true));
    no.addEventListener("click", () => confirmed(false));
    box.append(made("p", confirming.text), yes, no);
    parts.push(box);
  }
  if (notes.length) parts.push(...notes.map((text) => made("p", text, { class: "notice" })));
  const box = part("notices");
  const now = parts.map((element) => element.textContent).join("\n");
  if (box.dataset.now === now) return;
  box.dataset.now = now;
  box.replaceChildren(...parts);
}

let notes = [];

function show() {
  if (view) {
    if (view.ready) {
      showFacts();
      showLabels();
    }
    showQuestion();
    part("busy").textContent = view.busy;
  }
  showNotices();
  showButtons();
}

// answers

// row: the one that is meant, where that was said when another one may have been shown.
function answer(action, label, more, row) {
  undoNext = sending !== null && action === "undo"; // of what is on its way; any other key was for a row not seen yet
  if (sending || confirming || !view || !view.ready) return;
  const at = action === "undo" ? view.last : view.question;
  if (row !== undefined && row !== (at ? at.row : null)) {
    notes = ["What was said of row " + row.toLocaleString("en") + " counts for none: that row has gone meanwhile."];
    return show();
  }
  if (!at) return;
  if (action !== "undo" && performance.now() - exchanged < SEEN_MS) {
    notes = ["Another row has just come: the key was taken for the one before, and counts for none."];
    return show();
  }
  notes = [];
  sending = { run: view.run, id: newId(), who: view.who, row: at.row, action, ...more };
  if (label !== undefined) sending.label = label;
  send();
}

async function send() {
  sessionStorage.setItem(KEPT, JSON.stringify(sending));
  let response, found;
  try {
    response = await fetch("answer", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sending) });
    found = response.headers.get("Content-Type").startsWith("application/json") ? await response.json() : { kind: "wrong", message: await response.text() };
  } catch {
    away = true;
    show();
    setTimeout(send, AGAIN_MS);
    return;
  }
  away = false;
  if (response.ok && !found.kind) return taken(found);
  if (found.kind === "stale") return stale();
  if (found.kind === "unwritten") {
    notes = [found.message + " It is sent again."];
    show();
    setTimeout(send, AGAIN_MS);
    return;
  }
  const refused = sending;
  taken(null);
  if (found.kind === "new") confirming = { text: found.message, yes: () => answer("label", refused.label, { new: true }, refused.row) };
  else if (found.kind === "ends") confirming = { text: found.message, yes: () => answer("undo", undefined, { ends: true }, refused.row) };
  else notes = [found.message];
  show();
  if (found.kind === "gone") look().then(see, () => {});
}

function taken(found) {
  sending = null;
  sessionStorage.removeItem(KEPT);
  if (!found) return;
  const back = part("word").value !== "" && document.activeElement === part("word");
  part("word").value = "";
  wordRow = null;
  see(found, true);
  if (back) part("word").focus();
  if (undoNext) answer("undo");
}

function confirmed(yes) {
  const asked = confirming;
  confirming = null;
  show();
  part("question").focus({ preventScroll: true });
  if (yes) asked.yes();
}

// The program was started again: what it serves may be another page. The answer is sent once more, with the same id.
function stale() {
  location.reload();
}

// News is told once, by whatever answer comes first, an old one too.
function hear(found) {
  if (found.news && found.news.length) notes = found.news;
}

function see(found, mine) {
  hear(found);
  if (view && found.run === view.run && found.version < view.version) return showNotices();
  view = found;
  const row = found.question ? found.question.row : null;
  if (mine) lost = false;
  else if (shownRow !== null && row !== shownRow) lost = true;
  if (lost && row !== null) {
    exchanged = performance.now();
    lost = false;
  }
  show();
}

async function look() {
  const known = view && view.ready !== undefined ? "&run=" + view.run + "&version=" + view.version : "";
  const response = await fetch("state?who=" + encodeURIComponent(who) + known);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function watch() {
  for (;;) {
    try {
      const found = await look();
      if (view && found.run !== view.run) return stale();
      const was = away;
      away = false;
      if (sending) hear(found); // the answer on its way brings the next question: no key is pressed for another row
      else see(found);
      if (was) show();
    } catch {
      away = true;
      show();
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

async function begin() {
  const kept = sessionStorage.getItem(KEPT);
  if (kept) {
    for (;;) {
      try {
        see(await look());
        break;
      } catch {
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
    sending = { ...JSON.parse(kept), run: view.run };
    await send();
  }
  watch();
}

// keys

function keysAnswer() {
  return part("keys").checked;
}

function pressed(event) {
  if (event.repeat && event.key === "Enter" && event.target instanceof HTMLButtonElement) event.preventDefault(); // one row
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
  const typing = event.target === part("word");
  if (confirming) {
    if (event.key === "y" || event.key === "n" || event.key === "Escape") {
      event.preventDefault();
      confirmed(event.key === "y");
    }
    return;
  }
  if (typing || !keysAnswer()) return;
  const place = Number(event.key);
  const buttons = part("labels").querySelectorAll("button");
  if (event.key.length === 1 && place >= 1 && place <= buttons.length) answer("label", buttons[place - 1].dataset.label);
  else if (event.key === "s") answer("skip");
  else if (event.key === "?") answer("unsure");
  else if (event.key === "u") answer("undo");
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", pressed);
part("skip").addEventListener("click", () => answer("skip"));
part("unsure").addEventListener("click", () => answer("unsure"));
part("undo").addEventListener("click", () => answer("undo"));
part("typed").addEventListener("submit", (event) => {
  event.preventDefault();
  const word = part("word").value.trim();
  const begun = wordRow;
  if (view && view.question) wordRow = view.question.row; // who sends it once more means the row that is there now
  if (word) answer("label", word, undefined, begun === null ? undefined : begun);
});
part("word").addEventListener("input", () => {
  if (part("word").value === "") wordRow = null;
  else if (wordRow === null) wordRow = shownRow;
});
const KEYS = "coremargin keys";
part("keys").checked = localStorage.getItem(KEYS) !== "off";
part("keys").addEventListener("change", () => localStorage.setItem(KEYS, keysAnswer() ? "on" : "off"));
begin();
